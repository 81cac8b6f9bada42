"""What decides about the copy of the metadata log. Pure."""
