"""Decisions about remote reads, without I/O."""
