"""Coroutines that belong together, so that when one ends, all do; and what goes on when its waiter ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_first_ends(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, then cancel the others and wait for them.

    Raises:
        Exception: what the first one to end raised.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def result_of(future: "asyncio.Future[None]") -> None:
    """Return when `future` is done, which goes on when this is cancelled.

    Raises:
        Exception: what `future` raised.
    """
    await asyncio.shield(future)


async def end(future: "asyncio.Future[None]") -> None:
    """Cancel `future` and return when it has ended, however it does."""
    future.cancel()
    await asyncio.gather(future, return_exceptions=True)
