"""Client quotas: the limit of each client, and the throttle time of clients that exceed it."""
