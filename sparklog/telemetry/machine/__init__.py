"""What decides about telemetry."""
