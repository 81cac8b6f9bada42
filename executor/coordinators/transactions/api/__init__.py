"""The coordinator's APIs, one in each file: requests become events, outcomes become versioned responses."""
