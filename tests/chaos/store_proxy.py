"""An S3 server that can be made to fail: moto's, behind a proxy that speaks HTTP.

    with FaultyS3() as store:
        store.options                    # of the brokers' store
        store.faults = StoreFaults(storm=0.8)

The proxy passes each request on over a connection of its own. Conditional writes go one after the other,
since moto's are not atomic.
"""

import asyncio
import contextlib
import random
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit

from tests.s3_server import BUCKET, S3Server, s3_server

START_TIMEOUT_S: Final = 10.0
CONDITIONS: Final = (b"if-match:", b"if-none-match:")
SLOW_DOWN: Final = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
)
UNAVAILABLE: Final = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(SLOW_DOWN), SLOW_DOWN)
)


@dataclass(frozen=True, slots=True)
class StoreFaults:
    """What the store does to requests; without arguments it is whole."""

    storm: float = 0.0
    """How often a request is answered 503, between 0 and 1, before anything has happened."""
    hold_s: float = 0.0
    """How long each answer is held back."""
    cut: float = 0.0
    """How often the connection ends without an answer although the request was served."""
    is_away: bool = False
    """No connection is accepted for longer than a moment."""


@dataclass(slots=True)
class FaultyS3:
    """A running server; a context manager."""

    seed: int = 0
    faults: StoreFaults = StoreFaults()
    """May be changed at any time, and holds for requests that come afterwards."""
    seen: Counter[str] = field(default_factory=Counter)
    """How many requests were served, refused, held, cut, or met no store."""
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _endpoint: str = ""
    _prefix: str = field(default_factory=lambda: secrets.token_hex(4))
    """Of its own: all servers of a process have one bucket."""
    _upstream: tuple[str, int] = ("", 0)
    _chance: random.Random = field(default_factory=random.Random)
    _one_condition: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __enter__(self) -> Self:
        """Return when the server answers."""
        self._chance.seed(self.seed)
        with contextlib.ExitStack() as stack:
            address = urlsplit(stack.enter_context(s3_server()).endpoint)
            assert address.hostname is not None and address.port is not None
            self._upstream = (address.hostname, address.port)
            stack.enter_context(self._served())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def config(self) -> dict[str, str]:
        """Keys of a cluster that has its tier here."""
        options = S3Server(self._endpoint).options
        return {
            "sparklog.remote.uri": f"s3://{BUCKET}/{self._prefix}",
            **{f"sparklog.remote.option.{name}": value for name, value in options.items()},
        }

    @contextlib.contextmanager
    def _served(self) -> Iterator[None]:
        """Serve on a loop of its own, in a thread."""
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            thread = threading.Thread(target=loop.run_forever, name="store", daemon=True)
            thread.start()
            try:
                serving = asyncio.run_coroutine_threadsafe(self._listen(), loop)
                server = serving.result(START_TIMEOUT_S)
                yield
                loop.call_soon_threadsafe(server.close)
            finally:
                loop.call_soon_threadsafe(loop.stop)
                thread.join()

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        self._endpoint = f"http://{host}:{port}"
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request; the connection ends with it."""
        try:
            if self.faults.is_away:
                self.seen["met no store"] += 1
                writer.transport.abort()
                return
            request = await _request(reader)
            writer.write(await self._answer(request))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):  # the client, or moto, has gone
            return
        finally:
            writer.close()

    async def _answer(self, request: bytes) -> bytes:
        faults = self.faults
        if self._chance.random() < faults.storm:
            self.seen["refused"] += 1
            return UNAVAILABLE
        head = request.partition(b"\r\n\r\n")[0].lower()
        is_conditional = any(b"\r\n" + each in head for each in CONDITIONS)
        async with self._one_condition if is_conditional else contextlib.nullcontext():
            answer = await self._pass_on(request)
        if faults.hold_s:
            self.seen["held"] += 1
            await asyncio.sleep(faults.hold_s)
        if self._chance.random() < faults.cut:
            self.seen["cut"] += 1
            raise ConnectionAbortedError("cut")
        self.seen["served"] += 1
        return answer

    async def _pass_on(self, request: bytes) -> bytes:
        line, rest = request.split(b"\r\n", 1)
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            writer.write(line + b"\r\nConnection: close\r\n" + rest)
            await writer.drain()
            line, rest = (await reader.read()).split(b"\r\n", 1)
            return line + b"\r\nConnection: close\r\n" + rest
        finally:
            writer.close()


async def _request(reader: asyncio.StreamReader) -> bytes:
    """Read a whole request.

    Raises:
        IncompleteReadError: the client has gone.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return head + await reader.readexactly(int(value))
    return head
