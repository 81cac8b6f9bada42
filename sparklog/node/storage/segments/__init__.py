"""Segment files: records and indexes of a range of offsets."""
