"""The decisions of the loop's observation, without I/O."""
