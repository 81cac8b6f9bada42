"""What decides about quotas: no socket, file, thread or clock."""
