"""Access control lists: what an ACL says, which of them are asked for, and who may do what by them. Pure."""
