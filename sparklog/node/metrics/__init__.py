"""Metrics: Kafka's names, the instruments behind them, and the registry that reads them."""
