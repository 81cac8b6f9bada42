"""A controller that answers what a test tells it to, over a real listener."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from executor.controller_link import ControllerLink
from sparklog.wire.apis import ApiKey, known_versions
from sparklog.wire.requests import Api, Request
from sparklog.wire.server import Listener

Script = Mapping[ApiKey, Callable[[Request], Any]]


@asynccontextmanager
async def scripted_controller(script: Script, port: int = 0) -> AsyncIterator[Listener]:
    """Serve the script's handlers on loopback."""
    apis = {api_key: Api(*known_versions(api_key), handler) for api_key, handler in script.items()}
    listener = await Listener.start("127.0.0.1", port, apis, name="script")
    try:
        yield listener
    finally:
        await listener.close()


@asynccontextmanager
async def linked_controller(script: Script) -> AsyncIterator[tuple[Listener, ControllerLink]]:
    """Serve the script and keep a link to it."""
    async with scripted_controller(script) as listener:
        link = ControllerLink("127.0.0.1", listener.port, "broker-1")
        running = asyncio.create_task(link.run())
        try:
            yield listener, link
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
