"""Partitions on one broker: logs led and followed, each in the role that the metadata gives it."""
