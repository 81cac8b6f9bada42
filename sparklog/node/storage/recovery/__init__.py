"""Recovery of a log after an unclean shutdown."""
