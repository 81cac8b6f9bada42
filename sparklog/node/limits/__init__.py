"""Bounds on what peers may claim: connections, descriptors, request memory, log lines."""
