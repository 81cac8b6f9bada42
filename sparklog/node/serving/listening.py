"""The socket of a listener, which may be bound before the listener exists, and by another process."""

import socket

from sparklog.node.serving.socket_settings import SocketSettings


def listening_socket(host: str, port: int, settings: SocketSettings) -> socket.socket:
    """Bind `host`:`port` and listen; connections wait in the kernel's queue until a listener takes them.

    Resolves the name, which blocks.

    Raises:
        OSError: the address cannot be resolved or bound.
    """
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = resolved[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these; the receive buffer's must be known before a connection is made.
        if settings.receive_buffer_bytes is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        if settings.send_buffer_bytes is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        listening.bind(address)
        listening.listen(settings.listen_backlog_size)
    except BaseException:
        listening.close()
        raise
    return listening
