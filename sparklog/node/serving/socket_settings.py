"""Socket settings of a listener: the `socket...` part of a broker's configuration."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketSettings:
    """Named after Kafka's keys."""

    send_buffer_bytes: int | None = None
    """SO_SNDBUF; None leaves it to the system, which sizes it as a connection needs."""
    receive_buffer_bytes: int | None = None
    """SO_RCVBUF; None as above."""
    listen_backlog_size: int = 1024
    """Connections in the kernel's accept queue; it may allow fewer."""
    request_max_bytes: int = 104_857_600
    """A frame above this closes its connection."""
    connections_max_idle_ms: int | None = 600_000
    """Silence after which a connection that waits for no response is closed; None for never."""
