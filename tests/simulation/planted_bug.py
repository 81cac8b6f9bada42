"""How a bug is planted: patches that are in force inside a `with`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Replacement:
    """What stands where for as long as the bug is planted."""

    owner: Any
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, and where it goes."""

    what: str
    replacements: Callable[[], Sequence[Replacement]]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the bug while inside."""
        with ExitStack() as stack:
            for owner, name, value in (
                (replacement.owner, replacement.name, replacement.value)
                for replacement in self.replacements()
            ):
                stack.callback(setattr, owner, name, owner.__dict__[name])
                setattr(owner, name, value)
            yield
