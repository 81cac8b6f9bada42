"""Which transactions of exactly-once writes are open in a cluster, and an end to what nobody comes for."""
