"""Tokens of OAuth: which are accepted, by whose keys, and how a client comes by one."""
