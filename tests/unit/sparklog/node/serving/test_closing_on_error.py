"""What nobody expected, in a callback of one connection: whom it costs, and how often it is told."""

import asyncio
import logging
import ssl
from typing import Any

import pytest

from sparklog.node.serving.buffers import ReceiveBuffer
from sparklog.node.serving.outbox import Outbox
from sparklog.node.serving.tls.tls_outbox import TlsOutbox
from sparklog.node.serving.tls.tls_stream import TlsStream
from tests.certificates import Authority
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    RawClient,
    heartbeat,
    heartbeat_response,
    run,
    serving,
    until,
)
from tests.unit.sparklog.node.serving.tls_serving import client_of, server_tls

AUTHORITY = Authority()
SERVER = AUTHORITY.certify()


def lacks_memory(*of: Any) -> Any:
    """Do nothing, for want of memory."""
    raise MemoryError("no room")


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("where", "what", "server", "client"),
    [
        (ReceiveBuffer, "room", None, None),
        (Outbox, "flush", None, None),
        (TlsStream, "feed", server_tls(SERVER), None),  # the handshake
        (TlsStream, "feed", server_tls(SERVER), client_of(AUTHORITY)),
        (TlsStream, "read_into", server_tls(SERVER), client_of(AUTHORITY)),
        (TlsOutbox, "flush", server_tls(SERVER), client_of(AUTHORITY)),
    ],
)
def test_callback_that_raises_costs_its_connection_and_is_logged_once(
    where: type[Any],
    what: str,
    server: Any,
    client: ssl.SSLContext | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The loop called it again at once, as long as there was something to read, and logged it each time."""
    reported: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, error: reported.append(error))
        async with serving(HEARTBEAT_ONLY, tls=server) as listener:
            unlucky = await RawClient.connect(listener, tls=client)
            with monkeypatch.context() as lacking:
                lacking.setattr(where, what, lacks_memory)
                unlucky.send(heartbeat(1))
                await until(lambda: listener.accepted_count == 1 and listener.connection_count == 0)
            other = await RawClient.connect(listener, tls=server and client_of(AUTHORITY))
            other.send(heartbeat(2))
            assert await other.receive() == heartbeat_response(2)

    run(scenario())
    assert reported == []
    (line,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert line.levelno == logging.ERROR and line.exc_info is not None
    assert "no room" in caplog.text
