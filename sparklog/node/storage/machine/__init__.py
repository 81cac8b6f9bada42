"""Decisions about a log: epochs, producers, recovery, retention. Pure."""
