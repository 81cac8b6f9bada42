"""Groups of the classic protocol: members agree among themselves by JoinGroup and SyncGroup."""
