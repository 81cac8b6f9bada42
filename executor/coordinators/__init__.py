"""Coordinators: what a broker decides because it leads a partition of an internal topic."""
