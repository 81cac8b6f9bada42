"""Decisions of the transaction coordinator. Pure."""
