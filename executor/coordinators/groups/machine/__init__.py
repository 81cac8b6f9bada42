"""Decisions of the group coordinator. Pure."""
