"""The metrics of one broker, and their way to the driver."""
