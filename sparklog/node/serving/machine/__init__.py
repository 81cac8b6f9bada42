"""What decides about the wire. Pure."""
