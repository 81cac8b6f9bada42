"""When the controller's process is started, and what is repeated to the next one. Pure."""
