"""The controller's decisions, one module for each request."""
