"""Metrics on the wire: OTLP, and the requests that carry it (KIP-714), for brokers and the controller."""
