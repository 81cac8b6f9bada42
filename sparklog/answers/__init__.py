"""Answers that both sides give from a metadata image."""
