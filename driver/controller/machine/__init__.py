"""The controller's decisions: requests and events in, records and replies out. Pure."""
