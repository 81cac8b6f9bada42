"""A listener on loopback, clients that speak raw frames to it, and answers to give."""

import asyncio
import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from kio.schema.fetch.v12 import request as fetch_v12
from kio.schema.fetch.v12 import response as fetched_v12
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from sparklog.node.acls.acl import Principal
from sparklog.node.serving.listener import Listener, ListenerBounds, ListenerIdentity, Service
from sparklog.node.serving.requests import Api, Request
from sparklog.node.storage.file_region import FileRegion, LogFile
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.frames import decode_response, request_encoder
from sparklog.protocol.errors import ErrorCode

DEADLINE_S = 20.0

_T = TypeVar("_T")


def run(test: Coroutine[Any, Any, _T]) -> _T:
    """Run a test's coroutine with a deadline."""

    async def bounded() -> _T:
        async with asyncio.timeout(DEADLINE_S):
            return await test

    return asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until `condition` holds; the deadline is that of `run`."""
    while not condition():  # noqa: ASYNC110  (what is waited for has no event)
        await asyncio.sleep(0.001)


class BytesRegion(FileRegion):
    """A region of a temporary file that is gone when the region is."""

    def __init__(self, content: bytes, *, position: int = 0, length: int | None = None) -> None:
        self.content = content
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.flush()
            log_file = LogFile(Path("temporary"), os.dup(file.fileno()))
        super().__init__(log_file, position, len(content) - position if length is None else length)

    def truncate(self, length: int) -> None:
        os.ftruncate(self.fileno(), length)


def fetch_response(*records: Any) -> Any:
    """Return a Fetch response v12 with these records in one partition each."""
    return fetched_v12.FetchResponse(
        throttle_time=timedelta(0),
        error_code=ErrorCode.none,
        session_id=0,
        responses=(
            fetched_v12.FetchableTopicResponse(
                topic="topic",
                partitions=tuple(
                    fetched_v12.PartitionData(
                        partition_index=index,
                        error_code=ErrorCode.none,
                        high_watermark=5,
                        aborted_transactions=None,
                        records=part,
                    )
                    for index, part in enumerate(records)
                ),
            ),
        ),
    )


def fetch_request(max_bytes: int = 1) -> Any:
    """Return a Fetch request v12."""
    return fetch_v12.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(0),
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(),
        forgotten_topics_data=(),
        rack_id="",
    )


def heartbeat(generation_id: int = 0, group_id: str = "g") -> Any:
    """Return a small request whose `generation_id` tells it from others."""
    return HeartbeatRequest(
        group_id=group_id, generation_id=generation_id, member_id="m", group_instance_id=None
    )


def large_request(number: int, content: bytes) -> Any:
    """Return a request of any length; strings have their limit."""
    return PushTelemetryRequest(
        client_instance_id=None,
        subscription_id=number,
        terminating=False,
        compression_type=0,
        metrics=content,
    )


def answer_large(request: Request) -> Any:
    """Handle what `large_request` returns: the number comes back as the throttle time."""
    return large_response(request.body.subscription_id)


def large_response(throttle_ms: int) -> Any:
    """Return what `answer_large` does."""
    return PushTelemetryResponse(throttle_time=timedelta(milliseconds=throttle_ms), error_code=ErrorCode.none)


def heartbeat_response(throttle_ms: int = 0) -> Any:
    """Return a small response; `throttle_ms` tells it from others."""
    return HeartbeatResponse(throttle_time=timedelta(milliseconds=throttle_ms), error_code=ErrorCode.none)


class Heard:
    """Answers Heartbeat and notes who asked."""

    def __init__(self) -> None:
        self.principals: list[Principal] = []
        self.apis = {ApiKey.HEARTBEAT: Api(0, 4, self.answer)}

    def answer(self, request: Request) -> Any:
        self.principals.append(request.principal)
        return heartbeat_response()


def answer_heartbeat(request: Request) -> Any:
    """Handle Heartbeat: the generation comes back as the throttle time."""
    return heartbeat_response(request.body.generation_id)


class Metered:
    """A request whose client is to hold back, because it came or because of what it took."""

    def __init__(self, throttle_ms: int, *, worked_ms: int = 0) -> None:
        self.throttle_ms = throttle_ms
        self._worked_ms = worked_ms
        self.worked_s = 0.0

    def worked(self, worked_s: float) -> int:
        self.worked_s = worked_s
        return self._worked_ms


HEARTBEAT_ONLY = {ApiKey.HEARTBEAT: Api(0, 4, answer_heartbeat)}
SMALL_AND_LARGE = {**HEARTBEAT_ONLY, ApiKey.PUSH_TELEMETRY: Api(0, 0, answer_large)}


@asynccontextmanager
async def serving(apis: dict[ApiKey, Api], **options: Any) -> AsyncIterator[Listener]:
    """Serve `apis` on a free port of loopback; options are fields of what a listener is made of."""

    def picked(group: Any) -> dict[str, Any]:
        return {each.name: options.pop(each.name) for each in fields(group) if each.name in options}

    listener = await Listener.start(
        "127.0.0.1",
        0,
        Service(apis=apis, **picked(Service)),
        ListenerIdentity(name="test", **picked(ListenerIdentity)),
        ListenerBounds(**picked(ListenerBounds)),
        **options,
    )
    try:
        yield listener
    finally:
        await listener.close()


class RawClient:
    """A socket that writes and reads frames, correlation ids counted from 0."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._sent: list[Any] = []
        self._encode = request_encoder("raw")
        self._received = 0

    @classmethod
    async def connect(
        cls,
        listener: Listener,
        *,
        receive_buffer_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> "RawClient":
        connected = socket.socket()
        if receive_buffer_bytes is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connected.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", listener.port))
        server_hostname = None if tls is None else "localhost"
        return cls(*await asyncio.open_connection(sock=connected, ssl=tls, server_hostname=server_hostname))

    def frame(self, entity: Any) -> bytes:
        """Return the next request's bytes, and expect its response."""
        chunks: list[Any] = self._encode(entity, len(self._sent))
        self._sent.append(entity)
        return b"".join(chunks)

    def send(self, *entities: Any) -> None:
        self.writer.write(b"".join(self.frame(entity) for entity in entities))

    async def receive(self) -> Any:
        """Return the next response; its correlation id must be the next."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        frame = await self.reader.readexactly(size)
        correlation_id, response = decode_response(self._sent[self._received], frame)
        assert correlation_id == self._received
        self._received += 1
        return response

    async def closed_by_server(self) -> bool:
        """Read until the connection ends; return whether nothing more came."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.writer.close()


def resident_bytes() -> int:
    """Return this process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
