"""Whether a transaction may begin in a partition: its coordinator is asked, before anything is appended."""
