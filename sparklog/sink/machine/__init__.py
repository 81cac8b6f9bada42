"""What decides about the transactions of a sink."""
