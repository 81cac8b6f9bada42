"""A broker's part in the metadata quorum: its vote, its copy of the log for others, its roll call."""
