"""How a bug is planted: patches that are in force inside a `with`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Replacement:
    """What stands where for as long as the bug is planted."""

    owner: Any
    name: str
    value: Any


@contextmanager
def replaced(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Have others in place while inside."""
    with ExitStack() as stack:
        for owner, name, value in ((each.owner, each.name, each.value) for each in replacements):
            stack.callback(setattr, owner, name, owner.__dict__[name])
            setattr(owner, name, value)
        yield


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, and where it goes."""

    what: str
    replacements: Callable[[], Sequence[Replacement]]
    seeds: range = range(2_000)
    """Which ones are looked at for one that finds it."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the bug while inside."""
        with replaced(self.replacements()):
            yield
