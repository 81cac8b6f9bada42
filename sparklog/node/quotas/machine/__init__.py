"""Pure rules of quotas: no socket, file, thread or clock."""
