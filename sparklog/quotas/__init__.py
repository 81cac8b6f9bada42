"""How much of a node its clients may have: what limits whom, and for how long who had more is to wait."""
