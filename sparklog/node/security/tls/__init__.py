"""TLS: contexts of Python's `ssl` from Kafka's `ssl.` keys, and the principals of certificates."""
