"""Pure rules of moves between directories."""
