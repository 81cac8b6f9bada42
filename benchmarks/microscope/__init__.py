"""The CPU of a produced batch, split into the phases of its way through three brokers."""
