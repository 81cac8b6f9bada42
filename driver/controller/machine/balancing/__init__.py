"""The placement of replicas after brokers were added or lost: which moves, and when."""
