"""Which metrics a broker sends, and when. Pure."""
