"""The controller's process: its start by the driver, the messages between the two, and its end."""
