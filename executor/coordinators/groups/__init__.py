"""The group coordinator: consumer groups of both protocols, and the offsets they commit."""
