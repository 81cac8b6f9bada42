"""Coordinators of groups and transactions, one for each partition of their topics that this broker leads."""
