"""Each broker's session: the time of its last contact, and its progress in the metadata log.

Soft state: it is not in the log, and a new controller begins with sessions that have just been renewed.

Rule: only time in which the controller was listening counts against a session. When the controller itself
stood still (its process was stopped, its machine overloaded), heartbeats that wait in its sockets do not
count as late.
"""

from collections.abc import Iterable
from typing import Final

from sparklog.protocol.types import BrokerEpoch, BrokerId, Offset

LISTENING_GAP_MS: Final = 1_000
"""The controller ticks far more often; a longer gap means that it was not running."""


class Session:
    """The state of one registration that is not in the log."""

    __slots__ = ("broker_epoch", "last_contact_ms", "metadata_offset", "shutdown_offset")

    def __init__(self, broker_epoch: BrokerEpoch, last_contact_ms: int) -> None:
        self.broker_epoch = broker_epoch
        self.last_contact_ms = last_contact_ms
        self.metadata_offset: Offset | None = None
        """The last metadata record that the broker has applied; `None` while it has applied none."""
        self.shutdown_offset: Offset | None = None
        """In controlled shutdown: the others must have applied this record before the broker may leave."""


class BrokerSessions:
    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[BrokerId, Session] = {}
        self._last_tick_ms: int | None = None

    def get(self, broker_id: BrokerId) -> Session | None:
        return self._sessions.get(broker_id)

    def renew(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> Session:
        """Note a contact with the broker; an older registration's session is replaced."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = Session(broker_epoch, now_ms)
        session.last_contact_ms = now_ms
        return session

    def end(self, broker_id: BrokerId) -> None:
        """Forget the session: the broker has ended, or got should_shut_down."""
        self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: BrokerId, now_ms: int) -> bool:
        """Whether the last contact is within the session timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms - session.last_contact_ms < self._timeout_ms

    def listening(self, now_ms: int) -> None:
        """Note that the controller runs; call it at every tick, before sessions are judged."""
        if self._last_tick_ms is not None:
            gap_ms = now_ms - self._last_tick_ms
            if gap_ms > LISTENING_GAP_MS:
                for session in self._sessions.values():
                    session.last_contact_ms = min(now_ms, session.last_contact_ms + gap_ms)
        self._last_tick_ms = now_ms

    def all_applied(self, offset: Offset, broker_ids: Iterable[BrokerId]) -> bool:
        for broker_id in broker_ids:
            session = self._sessions.get(broker_id)
            if session is None or session.metadata_offset is None or session.metadata_offset < offset:
                return False
        return True
