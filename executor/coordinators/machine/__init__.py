"""What a coordinator decides, or is decided of it: the contract, and the states of a partition. Pure."""
