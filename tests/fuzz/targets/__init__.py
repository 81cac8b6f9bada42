"""The targets, by their names. Each module has `target()`, which makes the function that takes an input."""

from collections.abc import Callable
from importlib import import_module

__all__ = ["TARGETS", "Target", "load"]

Target = Callable[[bytes], None]

TARGETS = (
    "requests",
    "fixed",
    "connections",
    "batches",
    "snapshots",
    "files",
    "coordinators",
    "sasl",
    "certificates",
    "tls",
    "options",
    "configs",
)


def load(name: str) -> Target:
    """Return a target; its modules are imported now."""
    target: Target = import_module(f"tests.fuzz.targets.{name}").target()
    return target
