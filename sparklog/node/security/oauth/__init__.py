"""OAuth tokens: validation, the keys of identity providers, and the token sources of clients."""
