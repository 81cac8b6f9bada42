"""A member of a classic group, and its open requests. Source: Kafka's ClassicGroupMember."""

from collections.abc import Container
from typing import Any


class ClassicMember:
    """One member.

    A member with an open JoinGroup or SyncGroup need not send heartbeats. A new one need not either, but its
    JoinGroup has a time-out (`is_new`): its client may have gone and rejoin under another id.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        *,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[tuple[str, bytes], ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        """None for a dynamic member (KIP-345)."""
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        """Name and metadata of each, in the member's order of preference."""
        self.assignment = assignment
        self.awaiting_join: Any | None = None
        """Token of its open JoinGroup."""
        self.awaiting_sync: Any | None = None
        """Token of its open SyncGroup."""
        self.is_new = False

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether an open request keeps its session alive."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """Return its metadata for this protocol.

        Raises:
            KeyError: it does not speak it.
        """
        return dict(self.protocols)[protocol_name]

    def vote(self, candidates: Container[str]) -> str:
        """Return the member's preferred protocol among `candidates`.

        Raises:
            StopIteration: the member supports none of them.
        """
        return next(name for name, _ in self.protocols if name in candidates)
