"""The log `__cluster_metadata` as every replica keeps it: snapshots, control records, serving it."""
