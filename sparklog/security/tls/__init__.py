"""TLS: what Kafka's `ssl.` keys say, made into contexts of Python's `ssl`; and whose a certificate is."""
