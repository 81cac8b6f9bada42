"""What a coordinator decides, or is decided of it: the contract, and which states a shard is in. Pure."""
