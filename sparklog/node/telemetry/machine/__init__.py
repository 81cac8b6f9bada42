"""Pure rules of telemetry."""
