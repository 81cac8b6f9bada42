"""Decisions about the tier of led partitions: pure, events in and effects out."""
