"""Authentication: secrets, certificates, tokens, and the exchanges that prove an identity."""
