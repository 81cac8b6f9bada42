"""Pure rules of fetching, and of suspicions of other brokers."""
