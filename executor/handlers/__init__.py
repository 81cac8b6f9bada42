"""Requests that a broker answers from its metadata image or with the controller's help.

Those that touch a partition's log (Produce, Fetch, ListOffsets, ...) are in `executor.replication`;
`apis` joins both to the table of what a broker's listener serves.
"""
