"""The cluster's metadata: the records of `__cluster_metadata`, the image they add up to, answers from it."""
