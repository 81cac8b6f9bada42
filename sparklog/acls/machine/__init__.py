"""What decides about access."""
