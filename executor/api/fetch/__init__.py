"""Fetch: sessions, reads and the delayed response."""
