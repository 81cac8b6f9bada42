"""A broker's copy of `__cluster_metadata`: its vote, its fetches, and the images it publishes."""
