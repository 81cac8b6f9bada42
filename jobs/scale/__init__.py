"""Open transactions of exactly-once writes: a list, and the end of abandoned ones."""
