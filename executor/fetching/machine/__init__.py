"""What decides about what is fetched, and what connections tell of other brokers. Pure."""
