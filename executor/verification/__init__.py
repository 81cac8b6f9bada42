"""Verification with its coordinator that a transaction may begin in a partition, before the append."""
