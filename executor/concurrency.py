"""Coroutines that belong together: when one ends, all do."""

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["until_first_ends"]


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
