"""What decides about moves between directories."""
