"""Steps of a coroutine without an event loop: codecs and long responses yield by `await turn()`."""

from collections.abc import Awaitable, Generator
from types import GeneratorType, coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

Steps = Generator[Any, Any, Result]
"""Drives a coroutine: yields None for a turn, or the awaitable that the coroutine waits for."""


@coroutine
def turn() -> Generator[None, None, None]:
    """Let others go first, if the request has used up its share of this turn."""
    yield


def steps_of(awaitable: "Awaitable[Result] | Steps[Result]") -> Steps[Result]:
    if isinstance(awaitable, GeneratorType):
        return awaitable
    steps: Any = awaitable.__await__()  # type: ignore[union-attr]
    return steps  # type: ignore[no-any-return]


def in_one_go(awaitable: "Awaitable[Result] | Steps[Result]") -> Result:
    """Run a coroutine that waits for nothing; return what it returns."""
    steps = steps_of(awaitable)
    while True:
        try:
            steps.send(None)
        except StopIteration as last:
            result: Result = last.value
            return result
