"""The cluster by all decisions so far, and the queries that decisions have in common.

`image` runs ahead of the committed state: it holds every decision made, so that the next one is made on top
of it. Responses to clients and brokers come from the shell's committed image.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from sparklog.driver.controller.machine.partition_changes import Election, IsrRules
from sparklog.driver.controller.machine.placement import UsableBroker
from sparklog.driver.controller.machine.recent_leaders import RecentLeaders
from sparklog.driver.controller.machine.sessions import BrokerSessions
from sparklog.driver.controller.machine.topic_index import TopicIndex
from sparklog.driver.controller.machine.unsettled_partitions import UnsettledPartitions, is_active
from sparklog.node.config import TOPIC_KEYS, BrokerConfig
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.metadata.cluster_size import beyond
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.features import ELIGIBLE_LEADER_REPLICAS_FEATURE
from sparklog.node.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from sparklog.node.metadata.registrations import directory_is_online
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import UNASSIGNED_DIRECTORY, MetadataRecord
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicIdPartition

CONTROLLER_ID: Final[BrokerId] = 1_000_000
"""The driver's node id: above those of all brokers, which are counted from 0."""

MIN_IN_SYNC_REPLICAS: Final = "min.insync.replicas"
_UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class ClusterState:
    """The newest image, the brokers' sessions, and the driver's own configuration."""

    def __init__(
        self, cluster_id: str, config: BrokerConfig, image: MetadataImage, partitions_per_decision: int
    ) -> None:
        self.cluster_id = cluster_id
        self.started_with = self._config = config
        """The brokers' configuration at their start, without later changes."""
        self._dynamic_defaults: Mapping[str, str] = {}
        self.image = image
        self.partitions_per_decision = partitions_per_decision
        """The most partitions that one decision looks at for a change of a broker's state."""
        self.topic_index = TopicIndex(image)
        self.unsettled = UnsettledPartitions(image, self.topic_index)
        self.recent_leaders = RecentLeaders()
        self.sessions = BrokerSessions(config.broker_session_timeout_ms)
        self._active_of: tuple[object, Mapping[BrokerId, Collection[UUID]]] = (None, {})
        """The registrations of the last computation of `_active`, and its result."""
        self._surplus: tuple[object, object, frozenset[BrokerId]] = (None, None, frozenset())
        """The registrations and the configuration of the last computation of `surplus`, and its result."""
        self.departure_reasons: dict[BrokerId, str] = {}
        """The reason of each broker's last fencing or shutdown; no decision depends on it."""

    def replay(
        self, records: Sequence[MetadataRecord], last_offset: Offset, leader_epoch: LeaderEpoch
    ) -> MetadataDelta:
        """Apply decided records; `last_offset` is that of the last one (or of a control record, alone)."""
        before = self.image
        self.image, delta = replay_records(before, records, last_offset, leader_epoch)
        self.topic_index.changed(before, self.image, delta)
        self.unsettled.changed(before, self.image, delta, self.topic_index)
        self.recent_leaders.changed(before, self.image, delta)
        self._raise_shutdown_offsets(before, delta)
        return delta

    def _raise_shutdown_offsets(self, before: MetadataImage, delta: MetadataDelta) -> None:
        """Keep brokers in controlled shutdown until all others know the changes that took them out.

        Any change counts: a proposal of the ISR or an election may come between the parts of the shutdown.
        """
        for broker_id, registration in self.image.brokers.items():
            session = self.sessions.get(broker_id)
            if session is None or registration.fenced or not registration.in_controlled_shutdown:
                continue
            was = before.brokers.get(broker_id)
            if (
                was is None
                or not was.in_controlled_shutdown
                or any(
                    _is_taken_out(broker_id, partition, self.image.topics.partition(*key))
                    for key, partition in _changed_partitions(before, delta)
                )
            ):
                session.shutdown_offset = self.image.offset

    @property
    def config(self) -> BrokerConfig:
        """The configuration that all brokers have, with its changes at run time."""
        dynamic_defaults = self.image.broker_configs(None)
        if dynamic_defaults is not self._dynamic_defaults:
            self._dynamic_defaults = dynamic_defaults
            self._config = with_dynamic(self.started_with, dynamic_defaults, {})
        return self._config

    @property
    def surplus(self) -> frozenset[BrokerId]:
        """The registered brokers beyond the configured size of the cluster: they are drained and then end."""
        brokers, config = self.image.brokers, self.config
        if self._surplus[0] is not brokers or self._surplus[1] is not config:
            racks = {broker_id: registration.rack for broker_id, registration in brokers.items()}
            surplus = beyond(
                racks,
                config.sparklog_racks,
                config.sparklog_brokers_per_rack,
                config.sparklog_rack_names,
            )
            self._surplus = (brokers, config, surplus)
        return self._surplus[2]

    @property
    def next_offset(self) -> Offset:
        return self.image.end_offset

    def check_broker_epoch(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> BrokerRegistration:
        """Return the registration with this broker epoch.

        Raises:
            KafkaError: STALE_BROKER_EPOCH: the broker is not registered, or has registered again since.
        """
        registration = self.image.brokers.get(broker_id)
        if registration is None:
            raise KafkaError(ErrorCode.stale_broker_epoch, f"broker {broker_id} is not registered")
        if registration.broker_epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.stale_broker_epoch,
                f"broker {broker_id} speaks with broker epoch {broker_epoch}, "
                f"its registration has {registration.broker_epoch}",
            )
        return registration

    @property
    def _active(self) -> Mapping[BrokerId, Collection[UUID]]:
        """The log directories of each active broker: decisions about many partitions ask again and again."""
        brokers = self.image.brokers
        if self._active_of[0] is not brokers:
            active = {each: brokers[each].log_directories for each in brokers if is_active(self.image, each)}
            self._active_of = (brokers, active)
        return self._active_of[1]

    def is_active(self, broker_id: BrokerId) -> bool:
        """Whether the broker may lead and be in sync: registered, unfenced, not shutting down."""
        return broker_id in self._active

    def is_in_sync(self, partition: PartitionRegistration, broker_id: BrokerId) -> bool:
        """Whether a member of the partition's ISR still is: active, with the directory of its replica."""
        directories = self._active.get(broker_id)
        return directories is not None and directory_is_online(partition.directory_of(broker_id), directories)

    def lost_logs(self, partition: PartitionRegistration) -> tuple[BrokerId, ...]:
        """Return the active members of the ISR whose directories have failed: they leave it, as lost.

        A broker that registers again without a directory has left the ISR before, so its replica there may be
        whole.
        """
        active = self._active
        return tuple(
            each
            for each in partition.isr
            if each in active and not directory_is_online(partition.directory_of(each), active[each])
        )

    def is_leaving(self, broker_id: BrokerId) -> bool:
        """Whether the broker may be in ISRs that it has to leave, since not all could be changed at once."""
        return len(self.unsettled) > 0 and bool(self.topic_index.in_sync[broker_id])

    def is_arriving(self, broker_id: BrokerId, now_ms: int) -> bool:
        """Whether the broker has registered, and is about to be unfenced."""
        registration = self.image.brokers.get(broker_id)
        if registration is None or not registration.fenced or registration.in_controlled_shutdown:
            return False
        session = self.sessions.get(broker_id)
        return (
            session is not None
            and session.broker_epoch == registration.broker_epoch
            and self.sessions.is_alive(broker_id, now_ms)
        )

    def may_lead(
        self,
        partition: PartitionRegistration,
        *,
        leaving: Collection[BrokerId] = (),
        joining: BrokerId | None = None,
    ) -> Callable[[BrokerId], bool]:
        """Return the test for a leader of `partition` while brokers leave and `joining` is being unfenced.

        A broker that has registered again without the directory of its replica may not lead.
        """

        brokers = self.image.brokers

        def test(broker_id: BrokerId) -> bool:
            registration = brokers.get(broker_id)
            if registration is None or broker_id in leaving:
                return False
            if broker_id != joining and (registration.fenced or registration.in_controlled_shutdown):
                return False
            return registration.has_online_directory(partition.directory_of(broker_id))

        return test

    def isr_rules(self, topic: str) -> IsrRules:
        own = self.image.topic_configs(topic)
        unclean, minimum = own.get(_UNCLEAN_ELECTION), own.get(MIN_IN_SYNC_REPLICAS)
        return IsrRules(
            unclean_election=self.config.unclean_leader_election_enable
            if unclean is None
            else bool(TOPIC_KEYS[_UNCLEAN_ELECTION].parse(unclean)),
            min_in_sync_replicas=self.config.min_insync_replicas if minimum is None else int(minimum),
            eligible_leader_replicas=self.has_eligible_leader_replicas,
        )

    @property
    def has_eligible_leader_replicas(self) -> bool:
        return self.image.features.get(ELIGIBLE_LEADER_REPLICAS_FEATURE, 0) > 0

    def usable_brokers(self) -> Iterator[UsableBroker]:
        """Yield the brokers that can get replicas: all that stay in the cluster and are not shutting down."""
        surplus = self.surplus
        for broker_id, registration in self.image.brokers.items():
            if not registration.in_controlled_shutdown and broker_id not in surplus:
                yield UsableBroker(broker_id, registration.rack, registration.fenced)

    def default_directories(self, replicas: Iterable[BrokerId]) -> tuple[UUID, ...]:
        """Return the directory of each new replica (`default_directory`)."""
        return tuple(self.default_directory(broker_id) for broker_id in replicas)

    def default_directory(self, broker_id: BrokerId) -> UUID:
        """Return the only log directory, or UNASSIGNED_DIRECTORY: the broker assigns one (KIP-858)."""
        registration = self.image.brokers.get(broker_id)
        if registration is not None and len(registration.log_directories) == 1:
            return registration.log_directories[0]
        return UNASSIGNED_DIRECTORY

    def partitions(
        self, keys: Iterable[TopicIdPartition]
    ) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        topics = self.image.topics.by_id
        for topic_id, partition_id in keys:
            topic = topics.get(topic_id)
            partition = None if topic is None else topic.partitions.get(partition_id)
            if topic is not None and partition is not None:
                yield topic, partition_id, partition


def _changed_partitions(
    before: MetadataImage, delta: MetadataDelta
) -> Iterator[tuple[TopicIdPartition, PartitionRegistration]]:
    """Yield the changed partitions, in their state before the change."""
    for topic_id, numbers in delta.changed_topics.items():
        for number in numbers:
            partition = before.topics.partition(topic_id, number)
            if partition is not None:
                yield TopicIdPartition(topic_id, number), partition


def _is_taken_out(
    broker_id: BrokerId, before: PartitionRegistration, after: PartitionRegistration | None
) -> bool:
    if after is None:
        return False
    return (before.leader == broker_id != after.leader) or (
        broker_id in before.isr and broker_id not in after.isr
    )


def election_of(rules: IsrRules) -> Election:
    """Return how far an automatic election may go."""
    return Election.UNCLEAN if rules.unclean_election else Election.ONLINE
