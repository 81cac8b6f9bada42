"""Decisions about the tier: pure, events in and effects out."""
