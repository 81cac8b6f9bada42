"""A broker's copy of `__cluster_metadata`: its vote, how it follows, and the images it publishes."""
