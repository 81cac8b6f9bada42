"""What a listener asks of its sockets: the `socket...` part of a broker's configuration."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketSettings:
    """Named after Kafka's keys."""

    send_buffer_bytes: int | None = None
    """SO_SNDBUF; None leaves it to the system, which sizes it as a connection needs."""
    receive_buffer_bytes: int | None = None
    """SO_RCVBUF; None as above."""
    listen_backlog_size: int = 1024
    """How many connections the kernel keeps that are not accepted yet; it may allow fewer."""
    request_max_bytes: int = 104_857_600
    """A frame above this closes its connection."""
    connections_max_idle_ms: int | None = 600_000
    """After how much silence a connection is closed that waits for no answer; None for never."""
