"""Access control lists: ACLs, filters for them, and the authorizer. Pure."""
