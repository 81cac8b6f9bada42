"""Produce: from the request to the appended batches."""
