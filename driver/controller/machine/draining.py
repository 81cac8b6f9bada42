"""The end of surplus brokers: drained ones have no replica left, and are forgotten once they have shut down.

Their replicas are moved by `balancing`.
"""

from typing import Final

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.protocol.types import BrokerId

AWAY_MS: Final = 60_000
"""The absence after which a surplus broker that was not shut down counts as ended."""


class DrainedBrokers:
    def __init__(self) -> None:
        self._away_since_ms: dict[BrokerId, int] = {}
        """The time at which surplus brokers were first found to have no session."""
        self._leaving: set[BrokerId] = set()
        """The brokers that the driver shuts down; one without a session cannot be asked to."""

    def leaves(self, broker_id: BrokerId) -> None:
        """Note that a broker's job ends, or that it has none: its registration is of no use any more."""
        self._leaving.add(broker_id)

    def ended(self, cluster: ClusterState, now_ms: int) -> list[BrokerId]:
        """Return the drained brokers that have shut down, or have been away for `AWAY_MS`.

        One that is only late would end by the loss of its registration, and its rack's job with it. That is
        no loss if it leaves anyway.
        """
        ended = []
        self._leaving &= cluster.surplus
        for broker_id in self._away_since_ms.keys() - cluster.surplus:
            del self._away_since_ms[broker_id]
        for broker_id in sorted(cluster.surplus):
            registration = cluster.image.brokers[broker_id]
            if not registration.fenced or cluster.sessions.is_alive(broker_id, now_ms):
                self._away_since_ms.pop(broker_id, None)
                continue
            since_ms = self._away_since_ms.setdefault(broker_id, now_ms)
            is_gone = (
                registration.in_controlled_shutdown
                or broker_id in self._leaving
                or now_ms - since_ms >= AWAY_MS
            )
            if is_gone and is_drained(cluster, broker_id):
                ended.append(broker_id)
        return ended


def is_drained(cluster: ClusterState, broker_id: BrokerId) -> bool:
    """Whether no partition has a replica on the broker, also none that is only being removed."""
    return not cluster.topic_index.load.held[broker_id]
