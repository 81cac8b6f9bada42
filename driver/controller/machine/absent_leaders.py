"""Elections for partitions whose leader has never registered.

A cluster that is restored from its object store begins with leaders that have still to register
(`restoration`): an election for each would take a change of each partition. A broker that does not come
within a session is treated as one whose session has expired: it leaves ISRs and leaderships. An image of any
other origin has no such leader.

Pure.
"""

from collections.abc import Iterable

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.protocol.types import TopicIdPartition


class AbsentLeaders:
    def __init__(self, cluster: ClusterState) -> None:
        """Note the absent leaders of a controller's first image."""
        leading, brokers = cluster.topic_index.leading, cluster.image.brokers
        self._absent = frozenset(each for each, led in leading.items() if led and each not in brokers)
        self._deadline_ms: int | None = None

    def overdue(self, cluster: ClusterState, now_ms: int) -> Iterable[TopicIdPartition]:
        """Return, once, the partitions of the brokers that have not registered within a session."""
        if not self._absent:
            return ()
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + cluster.config.broker_session_timeout_ms
        if now_ms < self._deadline_ms:
            return ()
        overdue = self._absent - cluster.image.brokers.keys()
        self._absent = frozenset()
        return dict.fromkeys(key for each in sorted(overdue) for key in cluster.topic_index.in_sync[each])
