"""Groups whose members agree among themselves, by JoinGroup and SyncGroup: the classic protocol."""
