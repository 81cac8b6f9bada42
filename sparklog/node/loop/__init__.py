"""The event loop under observation: how long it stands still, and where."""
