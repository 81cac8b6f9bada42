"""Watching the calls by which a log touches its files."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def calls_of(name: str, then: Callable[[str, Any], None]) -> Iterator[list[str]]:
    """Have `then` called with the path and the result of each call of `os.<name>`; yields the paths."""
    original = getattr(os, name)
    paths: list[str] = []

    def call(descriptor: int, *arguments: Any) -> Any:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        paths.append(path)
        result = original(descriptor, *arguments)
        then(path, result)
        return result

    setattr(os, name, call)
    try:
        yield paths
    finally:
        setattr(os, name, original)
