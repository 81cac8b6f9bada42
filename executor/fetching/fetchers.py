"""All fetchers of one broker, by leader.

Partitions of one leader are spread over `num.replica.fetchers` connections. `add` and `remove` take effect at
once; `apply` ends the fetchers without partitions and replaces those whose leader has another address.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Final, NamedTuple

from sparklog.executor.fetching.copies import Copies
from sparklog.executor.fetching.fetcher import Fetcher, FetcherSettings, LogWork
from sparklog.executor.fetching.leader_fetches import FetchLimits
from sparklog.executor.fetching.leader_offsets import LeaderOffsets
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.fetching.tier_building import TierBuilding
from sparklog.executor.fetching.topic_id_syncs import TopicIdSyncs
from sparklog.executor.partitions.machine.replication_quota import ReplicationQuota
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.calling.cluster_credentials import NO_CREDENTIALS, ClusterCredentials
from sparklog.node.config import BrokerConfig
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metrics import server
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import Sample
from sparklog.protocol.types import BrokerEpoch, BrokerId

_FIRST_BACKOFF_MS: Final = 20
_CLIENT_ID: Final = "Replica"
"""Kafka's tag of metrics over all fetchers."""


class _Slot(NamedTuple):
    leader_id: BrokerId
    number: int


class FollowerServices(NamedTuple):
    """Services for followers' logs beside fetches."""

    leader_offsets: LeaderOffsets
    """Asks leaders where their logs start and their tiers end."""
    disk_threads: Executor
    """Wait for disks."""


class Fetchers(RoleListener[Replica]):
    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        table: PartitionTable,
        config: BrokerConfig,
        suspicions: BrokerSuspicions,
        quota: ReplicationQuota,
        services: FollowerServices,
        cluster_credentials: ClusterCredentials = NO_CREDENTIALS,
    ) -> None:
        """Fetch for the replicas in `table`; `quota` limits all of their fetches together.

        `cluster_credentials` is the protocol and credentials of the connections.
        """
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._table = table
        self._suspicions = suspicions
        self._copies = Copies(broker_id, table, quota)
        self._fetchers_each = config.num_replica_fetchers
        self._settings = FetcherSettings(
            limits=FetchLimits(
                max_wait_ms=config.replica_fetch_wait_max_ms,
                idle_wait_ms=config.idle_fetch_wait_ms,
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                partition_max_bytes=config.replica_fetch_max_bytes,
                backoff=ExponentialBackoff(_FIRST_BACKOFF_MS, max(config.replica_fetch_backoff_ms, 1)),
            ),
            socket_timeout_ms=config.replica_socket_timeout_ms,
            socket_receive_buffer_bytes=config.replica_receive_buffer_bytes,
            # One interval until this broker is asked to stop, one for the leader that exits before its time.
            warn_after_ms=2 * config.broker_heartbeat_interval_ms,
            cluster_credentials=cluster_credentials,
        )
        self._topic_id_syncs = TopicIdSyncs(services.disk_threads, self._may_go_on)
        self.tier_building: Final = TierBuilding(services.leader_offsets, self._may_go_on)
        """Builds the logs of followers whose leaders have the next records in the tier alone."""
        self._fetchers: dict[_Slot, Fetcher] = {}
        self._slots: dict[Replica, _Slot] = {}
        self._leader_unknown: dict[Replica, None] = {}
        """Followers whose leader's address is not known yet."""
        self._ended: list[Fetcher] = []
        self._stopped = False

    def add(self, replica: Replica) -> None:
        """Fetch for `replica` from its current leader, if the leader's address is known."""
        follower = replica.follower_state
        leader_id = None if follower is None else follower.leader_id
        if leader_id is None or replica.offline or self._stopped:
            return
        slot = self._slot(leader_id, replica)
        fetcher = self._fetchers.get(slot)
        if fetcher is None:
            found = self._table.endpoint(leader_id)
            if found is None:
                self._leader_unknown[replica] = None
                return
            endpoint, _ = found
            fetcher = Fetcher(
                self._broker_id,
                self._broker_epoch,
                leader_id,
                (endpoint.host, endpoint.port),
                self._settings,
                self._suspicions,
                self._copies,
                LogWork(self.tier_building.start, self._topic_id_syncs.start),
            )
            self._fetchers[slot] = fetcher
            fetcher.start()
        self._slots[replica] = slot
        fetcher.add(replica)

    def _may_go_on(self, replica: Replica, succeeded: bool) -> None:
        slot = self._slots.get(replica)
        if slot is not None:
            self._fetchers[slot].go_on(replica, succeeded=succeeded)

    def remove(self, replica: Replica) -> None:
        self._leader_unknown.pop(replica, None)
        slot = self._slots.pop(replica, None)
        if slot is not None:
            self._fetchers[slot].remove(replica)

    became_leader = stopped = deleted = remove

    def became_follower(self, replica: Replica) -> None:
        """Fetch from the new leader, or from the same one in its new epoch."""
        self.remove(replica)
        self.add(replica)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """End fetchers without partitions, and replace those whose leader has another endpoint.

        Partitions whose leader had no known endpoint are tried again.
        """
        for slot, fetcher in list(self._fetchers.items()):
            found = self._table.endpoint(slot.leader_id)
            moved = found is not None and (found[0].host, found[0].port) != fetcher.address
            if len(fetcher) == 0 or moved:
                del self._fetchers[slot]
                self._ended.append(fetcher)
                for replica in fetcher.replicas:
                    del self._slots[replica]
                    self.add(replica)
        unknown, self._leader_unknown = self._leader_unknown, {}
        for replica in unknown:
            self.add(replica)
        ended, self._ended = self._ended, []
        await asyncio.gather(*(fetcher.stop() for fetcher in ended))

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield lag, failed partitions and bytes; a source of a registry."""
        fetchers = self._fetchers.values()
        max_lag = max((fetcher.max_lag for fetcher in fetchers), default=0)
        yield Sample(server.MAX_LAG.of(clientId=_CLIENT_ID), Kind.GAUGE, max_lag)
        refused = sum(fetcher.refused_count for fetcher in fetchers)
        yield Sample(server.FAILED_PARTITIONS.of(clientId=_CLIENT_ID), Kind.GAUGE, refused)
        for slot, fetcher in self._fetchers.items():
            host, port = fetcher.address
            tags = {
                "brokerHost": host,
                "brokerPort": str(port),
                "clientId": f"ReplicaFetcherThread-{slot.number}-{slot.leader_id}",
            }
            yield Sample(server.FETCHER_BYTES.of(**tags), Kind.METER, fetcher.bytes_fetched)
            yield Sample(server.FETCHER_REQUESTS.of(**tags), Kind.METER, fetcher.requests_answered)

    async def stop(self) -> None:
        self._stopped = True
        await self.tier_building.stop()
        await self._topic_id_syncs.stop()
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._slots.clear()
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))

    def _slot(self, leader_id: BrokerId, replica: Replica) -> _Slot:
        partition = replica.topic_partition.partition
        return _Slot(leader_id, (hash(replica.topic_id) + partition) % self._fetchers_each)
