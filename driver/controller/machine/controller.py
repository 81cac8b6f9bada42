"""The controller: requests and events in, metadata records and replies out.

No clock, no randomness, no file and no socket: time and topic ids are given. Every decision is made on top
of all earlier ones, so the order for the caller is: `handle` (or `tick`, ...), then at once `replay` of the
records under the offset they get, then make them durable, and only then reply. Records of one decision
belong into one batch: they take effect together.

Source: KIP-631 and Kafka's org.apache.kafka.controller for behaviour and error codes.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest
from kio.schema.assign_replicas_to_dirs.v0.request import AssignReplicasToDirsRequest
from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest
from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.update_features.v2.request import UpdateFeaturesRequest

from sparklog.driver.controller.machine import fencing
from sparklog.driver.controller.machine.activation import bootstrap_records, size_records
from sparklog.driver.controller.machine.balancing.balancer import Balancer
from sparklog.driver.controller.machine.balancing.disks import MeasuredDisks
from sparklog.driver.controller.machine.balancing.leader_traffic import MeasuredTraffic
from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.draining import DrainedBrokers, is_drained
from sparklog.driver.controller.machine.elections import elect_leaders, name_all, settle
from sparklog.driver.controller.machine.internal_topics import InternalTopicRepair
from sparklog.driver.controller.machine.mutation_quota import UNLIMITED, MutationQuota
from sparklog.driver.controller.machine.requests.acls import create_acls, delete_acls
from sparklog.driver.controller.machine.requests.alter_partition import alter_partition
from sparklog.driver.controller.machine.requests.alter_reassignments import alter_reassignments
from sparklog.driver.controller.machine.requests.assign_directories import assign_directories
from sparklog.driver.controller.machine.requests.broker_heartbeat import heartbeat
from sparklog.driver.controller.machine.requests.broker_registration import register
from sparklog.driver.controller.machine.requests.client_quotas import alter_client_quotas
from sparklog.driver.controller.machine.requests.configs import alter_configs, incremental_alter_configs
from sparklog.driver.controller.machine.requests.create_partitions import create_partitions
from sparklog.driver.controller.machine.requests.create_topics import create_topics
from sparklog.driver.controller.machine.requests.delete_topics import delete_topics
from sparklog.driver.controller.machine.requests.producer_ids import allocate_producer_ids, init_producer_id
from sparklog.driver.controller.machine.requests.scram_credentials import alter_user_scram_credentials
from sparklog.driver.controller.machine.requests.unregister_broker import unregister_broker
from sparklog.driver.controller.machine.requests.update_features import update_features
from sparklog.driver.controller.machine.topic_index import TopicIndex
from sparklog.driver.controller.machine.unclean_recovery import LogQuestion, UncleanRecovery
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.cluster_size import ClusterSize
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.schemas import MetadataRecord, UserScramCredentialRecord
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicIdPartition

logger = logging.getLogger(__name__)


class AbsentLeaders:
    """Elections for partitions whose leader has never registered.

    A cluster that is restored from its object store begins with leaders that have still to register
    (`restoration`): an election for each would take a change of each partition. A broker that does not
    come within a session is treated as one whose session has expired.
    """

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


PARTITIONS_PER_DECISION: Final = 150
"""The most partitions that change at once for a broker's state: some 7 ms of the loop beside 200,000."""


class _Periodic:
    """An action that is due an interval after the first look at it, and every interval from then on."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._last_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        if self._last_ms is None:
            self._last_ms = now_ms
        if now_ms - self._last_ms < self._interval_ms:
            return False
        self._last_ms = now_ms
        return True


class Controller:
    """The state of the cluster by all decisions so far, and the rules by which it changes."""

    def __init__(
        self,
        cluster_id: str,
        config: BrokerConfig,
        new_id: Callable[[], UUID],
        image: MetadataImage = EMPTY_IMAGE,
        *,
        partitions_per_decision: int = PARTITIONS_PER_DECISION,
    ) -> None:
        """Take over at `image`. `new_id` must never return an id twice."""
        self._cluster = ClusterState(cluster_id, config, image, partitions_per_decision)
        self._new_id = new_id
        self._stopping = False
        self._balance = _Periodic(config.leader_imbalance_check_interval_seconds * 1_000)
        self._unclean_elections = _Periodic(config.unclean_leader_election_interval_ms)
        self._recovery = UncleanRecovery()
        self._absent_leaders = AbsentLeaders(self._cluster)
        self._internal_topics = InternalTopicRepair()
        self._balancer = Balancer(self._cluster)
        self._drained = DrainedBrokers()

    @property
    def topic_index(self) -> TopicIndex:
        return self._cluster.topic_index

    @property
    def image(self) -> MetadataImage:
        """The cluster with every decision so far, durable or not."""
        return self._cluster.image

    @property
    def is_settled(self) -> bool:
        """Whether all changes for new states of brokers are made; otherwise `tick` goes on with them."""
        return self._stopping or not len(self._cluster.unsettled)

    @property
    def surplus(self) -> Mapping[BrokerId, int]:
        """The brokers beyond the cluster's configured size, each with the number of replicas still on it."""
        held = self._cluster.topic_index.load.held
        return {each: held[each] for each in sorted(self._cluster.surplus)}

    @property
    def leaving(self) -> frozenset[BrokerId]:
        """The brokers in a controlled shutdown, or that have ended by one."""
        brokers = self.image.brokers.values()
        return frozenset(each.broker_id for each in brokers if each.in_controlled_shutdown)

    @property
    def emptied(self) -> frozenset[BrokerId]:
        """The surplus brokers without replicas."""
        return frozenset(each for each in self._cluster.surplus if is_drained(self._cluster, each))

    @property
    def is_in_sync(self) -> bool:
        """Whether the brokers that stay are active, and in the ISR of each partition that they hold.

        One without a replica is not missed while it is away: it may wait for an executor of the others.
        """
        cluster, index = self._cluster, self._cluster.topic_index
        return all(
            is_drained(cluster, each)
            or (cluster.is_active(each) and len(index.in_sync[each]) == index.load.held[each])
            for each in self.image.brokers.keys() - cluster.surplus
        )

    def unregister_drained(self, voters: Collection[BrokerId], now_ms: int) -> ControllerResult:
        """Unregister a surplus broker that has ended, once it has no replica and no vote."""
        ended = () if self._stopping else self._drained.ended(self._cluster, now_ms)
        for broker_id in ended:
            if broker_id not in voters:
                request = UnregisterBrokerRequest(broker_id=broker_id)
                return ControllerResult(unregister_broker(self._cluster, request).records, None)
        return ControllerResult([], None)

    @property
    def departure_reasons(self) -> Mapping[BrokerId, str]:
        return self._cluster.departure_reasons

    def bootstrap(
        self,
        initial_scram_users: Sequence[UserScramCredentialRecord] = (),
        started_size: ClusterSize | None = None,
        *,
        is_new_application: bool = True,
    ) -> ControllerResult:
        """Return the first decision of a controller; it is empty if the configuration has not changed.

        A new cluster gets the `initial_scram_users`. `started_size` is that of an application's start.
        A later controller of the same application leaves the size as it is in the log, if it is there.
        """
        records = bootstrap_records(self.image, self._cluster.started_with, initial_scram_users)
        if started_size is not None:
            rack_names = self._cluster.started_with.sparklog_rack_names
            records += size_records(
                self.image, started_size, rack_names, is_new_application=is_new_application
            )
        return ControllerResult(records, None)

    def handle(self, request: Any, now_ms: int, quota: MutationQuota = UNLIMITED) -> ControllerResult:
        """Decide a request, an entity of one of the types below, within its client's `quota`.

        Raises:
            KeyError: another kind of entity.
        """
        limited = _LIMITED_HANDLERS.get(type(request))
        if limited is not None:
            return limited(self, request, quota)
        return _HANDLERS[type(request)](self, request, now_ms)

    def in_full(self, request: Any) -> Any:
        """Return the request with all its subjects named, so that it can be divided (`parts`)."""
        return name_all(self._cluster, request) if isinstance(request, ElectLeadersRequest) else request

    def tick(self, now_ms: int) -> ControllerResult:
        """Fence the brokers whose sessions have expired, or else hold the elections that are due.

        Without either, begin the next moves of replicas (`balancing`).

        Call it again, after `replay`, until it has no records and `is_settled`.
        """
        self._cluster.sessions.listening(now_ms)
        self._cluster.recent_leaders.tick(now_ms)
        if self._stopping:
            return ControllerResult([], None)
        cluster, index = self._cluster, self._cluster.topic_index
        records = fencing.fence_expired(cluster, now_ms)
        if not records and cluster.config.auto_leader_rebalance_enable and self._balance.is_due(now_ms):
            rested = (each for each in index.led_by_another if each not in cluster.recent_leaders)
            cluster.unsettled.note_preferred((*rested, *index.leaderless))
        if not records and self._unclean_elections.is_due(now_ms):
            cluster.unsettled.note(index.leaderless)
        cluster.unsettled.note(self._absent_leaders.overdue(cluster, now_ms))
        if not records:
            records = settle(cluster) or self._decided_by_logs(now_ms)
        if not records and self.is_settled:
            records = self._balancer.step(now_ms)
        return ControllerResult(records, None)

    def log_questions(self, now_ms: int) -> list[LogQuestion]:
        """Return the questions about brokers' logs that elections and removals wait for."""
        if self._stopping:
            return []
        return self._recovery.questions(self._cluster, now_ms) + self._internal_topics.questions(
            self._cluster
        )

    def log_question_answered(
        self, question: LogQuestion, positions: Mapping[tuple[str, int], LogPosition], now_ms: int
    ) -> ControllerResult:
        """Note the ends of a broker's logs, by topic and partition; missing ones are asked for again."""
        self._recovery.answered(question, positions)
        self._internal_topics.answered(self._cluster, question, positions)
        return ControllerResult([] if self._stopping else self._decided_by_logs(now_ms), None)

    def broker_gone(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> ControllerResult:
        """Fence a broker whose process is known to have ended, if it has not registered again since."""
        registration = self.image.brokers.get(broker_id)
        if registration is None or registration.broker_epoch != broker_epoch:
            return ControllerResult([], None)
        self._cluster.sessions.end(broker_id)
        if registration.fenced or self._stopping:
            return ControllerResult([], None)
        return ControllerResult(fencing.fence(self._cluster, registration, "its process has ended"), None)

    def shut_down_broker(self, broker_id: BrokerId, reason: str) -> ControllerResult:
        """Let one broker leave while the cluster goes on: its leaders move, then it gets should_shut_down."""
        registration = self.image.brokers.get(broker_id)
        if registration is None or self._stopping:
            return ControllerResult([], None)
        if broker_id in self._cluster.surplus:
            self._drained.leaves(broker_id)
        return ControllerResult(fencing.begin_controlled_shutdown(self._cluster, registration, reason), None)

    def shut_down_brokers(self) -> None:
        """Answer every heartbeat with should_shut_down from now on; fence no broker, elect no leader.

        The ISRs stay what they are, so that the last broker to leave is not the only one in sync.
        """
        logger.info("All brokers shut down: should_shut_down is the reply to every heartbeat from now on")
        self._stopping = True

    def metadata_fetched(self, broker_id: BrokerId, fetch_offset: Offset) -> None:
        """Note that a broker has the metadata log up to `fetch_offset`, exclusive.

        Fresher than its heartbeats; a controlled shutdown waits for it.
        """
        session = self._cluster.sessions.get(broker_id)
        if session is not None and fetch_offset > 0:
            session.metadata_offset = max(session.metadata_offset or 0, fetch_offset - 1)

    def disks_reported(self, broker_id: BrokerId, measured: MeasuredDisks) -> None:
        """Note the use of a broker's disks, by which replicas are balanced."""
        self._balancer.disks_reported(broker_id, measured)

    def traffic_reported(self, broker_id: BrokerId, measured: MeasuredTraffic | None) -> None:
        """Note the traffic of a broker's leaders, by which leaderships are balanced; None if not known."""
        self._balancer.traffic_reported(broker_id, measured)

    def replay(
        self, records: Sequence[MetadataRecord], last_offset: Offset, leader_epoch: LeaderEpoch
    ) -> None:
        """Apply decided records; `last_offset` is that of the last one (or of a control record, alone)."""
        before = self.image
        delta = self._cluster.replay(records, last_offset, leader_epoch)
        self._balancer.changed(before, self.image, delta)

    def _decided_by_logs(self, now_ms: int) -> list[MetadataRecord]:
        return self._recovery.elections(self._cluster, now_ms) or self._internal_topics.removals(
            self._cluster
        )

    def _register(self, request: BrokerRegistrationRequest, now_ms: int) -> ControllerResult:
        return register(self._cluster, request, now_ms)

    def _heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> ControllerResult:
        return heartbeat(self._cluster, request, now_ms, stopping=self._stopping)

    def _create_topics(self, request: CreateTopicsRequest, quota: MutationQuota) -> ControllerResult:
        return create_topics(self._cluster, request, self._new_id, quota)

    def _create_acls(self, request: CreateAclsRequest, now_ms: int) -> ControllerResult:
        return create_acls(self._cluster, request, self._new_id)

    def _delete_topics(self, request: DeleteTopicsRequest, quota: MutationQuota) -> ControllerResult:
        return delete_topics(self._cluster, request, quota)

    def _create_partitions(self, request: CreatePartitionsRequest, quota: MutationQuota) -> ControllerResult:
        return create_partitions(self._cluster, request, quota)


def _timeless(
    decide: Callable[[ClusterState, Any], ControllerResult],
) -> Callable[[Controller, Any, int], ControllerResult]:
    return lambda controller, request, _: decide(controller._cluster, request)


_HANDLERS: Final[Mapping[type[Any], Callable[[Controller, Any, int], ControllerResult]]] = MappingProxyType(
    {
        BrokerRegistrationRequest: Controller._register,
        BrokerHeartbeatRequest: Controller._heartbeat,
        CreateAclsRequest: Controller._create_acls,
        DeleteAclsRequest: _timeless(delete_acls),
        IncrementalAlterConfigsRequest: _timeless(incremental_alter_configs),
        AlterConfigsRequest: _timeless(alter_configs),
        AlterClientQuotasRequest: _timeless(alter_client_quotas),
        AlterUserScramCredentialsRequest: _timeless(alter_user_scram_credentials),
        AlterPartitionRequest: _timeless(alter_partition),
        AlterPartitionReassignmentsRequest: _timeless(alter_reassignments),
        AssignReplicasToDirsRequest: _timeless(assign_directories),
        AllocateProducerIdsRequest: _timeless(allocate_producer_ids),
        InitProducerIdRequest: _timeless(init_producer_id),
        ElectLeadersRequest: _timeless(elect_leaders),
        UnregisterBrokerRequest: _timeless(unregister_broker),
        UpdateFeaturesRequest: _timeless(update_features),
    }
)
"""The requests that `Controller.handle` decides without a quota."""

_LIMITED_HANDLERS: Final[Mapping[type[Any], Callable[[Controller, Any, MutationQuota], ControllerResult]]] = (
    MappingProxyType(
        {
            CreateTopicsRequest: Controller._create_topics,
            DeleteTopicsRequest: Controller._delete_topics,
            CreatePartitionsRequest: Controller._create_partitions,
        }
    )
)
"""The requests that a client's mutation quota limits."""

DECIDED_APIS: Final = frozenset(ApiKey(each.__api_key__) for each in (*_HANDLERS, *_LIMITED_HANDLERS))
