"""The controller's process: how the driver starts it, what the two tell each other, and how it ends."""
