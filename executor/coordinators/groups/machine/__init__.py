"""What the group coordinator decides. Pure."""
