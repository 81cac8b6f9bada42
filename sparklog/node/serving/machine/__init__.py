"""Decisions about connections. Pure."""
