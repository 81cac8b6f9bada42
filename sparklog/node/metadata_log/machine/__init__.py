"""Decisions about a replica of the metadata log. Pure."""
