"""Bytes of requests and responses: API keys, versions, frames, and entities checked before they are read."""
