"""What comes to a listener of TLS: a handshake, or what looks like one, and records behind a whole one.

The first byte: nothing before; the client's last flight of a real handshake, changed by the input; a real
handshake, and then bytes as they are; a real handshake, and then encrypted bytes, in records as the input
cuts them. In how many pieces they come is in it, too.
"""

import contextlib
import ssl
import struct
from typing import Any

from sparklog.node.config import BrokerConfig
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.machine.authenticator import Mechanisms
from sparklog.node.serving.tls.tls_connection import TlsConnection
from sparklog.node.serving.tls.tls_handshakes import TlsHandshakes
from tests.certificates import Authority
from tests.fuzz.finding import expect
from tests.fuzz.loop import Loop, Socket
from tests.fuzz.serving import Serving
from tests.fuzz.targets import Target

_PIECES = (1, 2, 7, 40)


def target() -> Target:
    loop = Loop()
    authority = Authority()
    server = authority.certify()
    config = BrokerConfig.from_mapping(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": server.key_pem,
            "ssl.keystore.certificate.chain": server.certificate_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.pem,
            "ssl.client.auth": "requested",
        }
    )
    tls = listener_tls(config, "SSL", SecurityProtocol.SSL, ApplicationSecret.new())
    assert tls is not None
    serving = Serving(loop, "SSL", Authentication(Mechanisms({})), lambda request: None)
    serving.handshakes = handshakes = TlsHandshakes(loop, tls)
    client = ssl.create_default_context(cadata=authority.pem)

    def take(data: bytes) -> None:
        if not data:
            return
        mode, rest = data[0], data[1:]
        connected = Socket(7)
        connection = TlsConnection(serving, connected.as_socket(), "10.0.0.1:4711", handshakes)
        kind = mode & 0x03
        coming = _behind_handshake(client, loop, connected, kind, rest) if kind else rest
        serving.take_in(connected, connection, coming, _PIECES[mode >> 4 & 0x03])
        expect(connected.closed and not loop.readers and not loop.writers, "something is left of it")
        expect(not handshakes._under_way, "its handshake is still under way")

    return take


def _behind_handshake(
    context: ssl.SSLContext, loop: Loop, connected: Socket, kind: int, rest: bytes
) -> bytes:
    """Take a client's part in a handshake; return what it says last, by what the input says."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    connected.come(outgoing.read())
    loop.readers[connected.fileno()]()
    loop.run_until_idle(0.1)
    incoming.write(bytes(connected.sent))
    client.do_handshake()
    last = outgoing.read()
    if kind == 1:
        return _changed(last, rest)
    if kind == 2:
        return last + rest
    return last + b"".join(_encrypted(client, outgoing, rest))


def _changed(flight: bytes, rest: bytes) -> bytes:
    """Put bytes of the input over those of the flight, each at a place that is two bytes before it."""
    changed: Any = bytearray(flight)
    for position in range(0, len(rest) - 2, 3):
        (place,) = struct.unpack_from(">H", rest, position)
        changed[place % len(changed)] = rest[position + 2]
    return bytes(changed)


def _encrypted(client: ssl.SSLObject, outgoing: ssl.MemoryBIO, rest: bytes) -> list[bytes]:
    records = []
    for part in rest.split(b"\xff", 8):
        if part:
            client.write(part)
        records.append(outgoing.read())
    return records
