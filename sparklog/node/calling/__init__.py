"""The client side of a connection, for asyncio and for blocking callers."""
