"""Contract of the coordinators' machines, and the states of a partition. Pure."""
