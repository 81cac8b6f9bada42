"""What the controller decides: requests and events in, records and replies out. Pure."""
