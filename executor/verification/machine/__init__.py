"""What decides about questions to coordinators. Pure."""
