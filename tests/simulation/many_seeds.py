"""The seeds that `test_seeds` runs without any bug, each of which must be clean."""

from typing import Final

ROLLING: Final = 248
"""The first seed in which nothing happens to groups but a restart of all brokers."""
SEEDS: Final = (*range(200), ROLLING)
