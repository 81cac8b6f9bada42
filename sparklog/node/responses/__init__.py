"""Responses that both sides compute from a metadata image."""
