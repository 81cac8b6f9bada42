"""Sharing the event loop: tasks that end together, and long work in slices."""
