"""The tier of the partitions that this broker leads: copying, merging and deleting remote segments."""
