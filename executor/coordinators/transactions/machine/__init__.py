"""What the transaction coordinator decides. Pure."""
