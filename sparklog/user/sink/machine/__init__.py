"""Decisions about the transactions of a sink."""
