"""Moves entities between versions of one API (skeleton, being written)."""

from typing import Any


def upgrade(entity: Any) -> Any:
    """Return `entity` in the newest version kio has; missing fields take their defaults."""
    raise NotImplementedError


def downgrade(entity: Any, version: int) -> Any:
    """Return `entity` in `version`; fields that version lacks are dropped."""
    raise NotImplementedError
