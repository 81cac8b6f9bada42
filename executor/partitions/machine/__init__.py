"""What decides about a partition: who is in sync, what is committed, what a follower does. Pure."""
