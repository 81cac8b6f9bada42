"""From an address to a connected socket, and through its TLS handshake."""

import asyncio
import contextlib
import socket

from sparklog.node.security.tls.errors import tls_error
from sparklog.node.serving.tls.tls_stream import SLICE_BYTES, ClientTls, TlsStream


async def handshake(connected: socket.socket, tls: ClientTls, host: str, peer: str) -> TlsStream:
    """Return the stream of a connection after its TLS handshake.

    Raises:
        KafkaError: TlsHandshakeError, or the connection was lost amid it. The socket is closed then.
    """
    loop = asyncio.get_running_loop()
    stream = TlsStream(tls.context, server_side=False, server_hostname=tls.server_name or host)
    try:
        while not await asyncio.to_thread(stream.handshake):
            await loop.sock_sendall(connected, stream.take())
            received = await loop.sock_recv(connected, SLICE_BYTES)
            if not received:
                raise ConnectionResetError("the connection was closed")
            stream.feed(received)
        await loop.sock_sendall(connected, stream.take())
    except OSError as error:
        if stream.has_output:  # the alert with the reason, if the socket takes it at once
            with contextlib.suppress(OSError):
                connected.send(stream.take())
        connected.close()
        raise tls_error(peer, error) from error
    except BaseException:
        connected.close()
        raise
    return stream


async def connect_to_first(host: str, port: int, receive_buffer_bytes: int | None) -> socket.socket:
    """Return a socket connected to the first address of `host` that accepts."""
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        candidate = socket.socket(family, kind, protocol)
        candidate.setblocking(False)
        if receive_buffer_bytes is not None:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            await loop.sock_connect(candidate, address)
        except OSError as error:
            candidate.close()
            failure = error
        except BaseException:
            candidate.close()
            raise
        else:
            return candidate
    raise failure or OSError(f"{host} has no address")
