"""What decides about a broker's life and what it tells its controller. Pure."""
