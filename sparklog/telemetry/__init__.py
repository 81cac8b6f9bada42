"""Metrics on the wire: OTLP, and the requests that carry it (KIP-714). Both sides take and give them."""
