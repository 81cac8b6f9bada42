"""The coordinator's APIs, a file an API: a request into an event, an outcome into the version's response."""
