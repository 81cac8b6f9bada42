"""The driver's side of the metadata quorum: how it becomes the leader, and how it knows what is committed."""
