"""One look at a cluster by Kafka's own APIs, and rates since the look before."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData

from sparklog.jobs.top.groups import GroupsSeen, GroupWatch
from sparklog.jobs.top.tier_figures import TierWatch, TopicTier
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.clocks import monotonic_ms
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, BrokerId, Offset, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig
from sparklog.user.client.connecting import connected
from sparklog.user.client.log_dirs import BrokerDirectories, describe_log_dirs
from sparklog.user.client.offsets import high_watermarks, last_tiered_offsets

TIMEOUT_MS: Final = 3_000
MAX_RESPONSE_BYTES: Final = 16 << 20
"""Some 100,000 partitions of a broker, or 300,000 groups."""


class BrokerRow(NamedTuple):
    """A broker; None for values that it did not report."""

    node_id: BrokerId
    address: str
    rack: str | None
    is_fenced: bool
    led: int
    held: int
    in_sync: int
    records_in_per_s: float | None
    log_bytes: int | None
    usable_bytes: int | None
    offline_directories: int


class TopicRow(NamedTuple):
    name: str
    partitions: int
    records: int | None
    """By the high watermarks; deleted records count."""
    records_in_per_s: float | None
    """Since the look before; None if it was unknown then."""
    log_bytes: int | None
    """Bytes of the logs of all its replicas."""
    tiered_records: int | None = None
    """By the last offsets in the tier, deleted records included; None of a topic without any."""
    tier: TopicTier | None = None
    """By the driver's metrics, where these are looked at."""


class Troubled(NamedTuple):
    """A partition without a leader, or with replicas that are not in sync."""

    name: str
    leader: BrokerId | None
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


class QuorumRow(NamedTuple):
    """A voter of the metadata log other than the leader, and its lag in records."""

    node_id: BrokerId
    lag: int | None


class Overview(NamedTuple):
    cluster_id: str
    controller_id: BrokerId | None
    leader_epoch: int | None
    voters: tuple[QuorumRow, ...]
    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...]
    """By the rate of writes, the highest first."""
    partitions: int
    troubled: tuple[Troubled, ...]
    """Partitions in trouble, those without a leader first."""
    groups: GroupsSeen


class _Look(NamedTuple):
    taken_ms: int
    high_watermarks: Mapping[TopicPartition, Offset]
    last_tiered: Mapping[TopicPartition, Offset]


class ClusterWatch:
    """Watches one cluster; belongs to one thread."""

    def __init__(self, client: ClientConfig, tier: TierWatch | None = None) -> None:
        """Watch; `tier` reads the figures that brokers do not give to clients."""
        config = replace(
            client,
            client_id="sparklog-top",
            request_timeout_ms=TIMEOUT_MS,
            api_timeout_ms=TIMEOUT_MS,
            max_response_bytes=MAX_RESPONSE_BYTES,
        )
        self._config = config
        self._known: tuple[tuple[str, int], ...] = ()
        """The brokers' addresses by the last look: the bootstrap server may have died."""
        self._client = ClusterClient(config)
        self._groups = GroupWatch()
        self._tier = tier
        self._before: _Look | None = None

    def look(self) -> Overview:
        """Return the cluster's current state.

        Raises:
            KafkaError: no known address answers.
            MetricsPageError: the figures of the tier cannot be read.
        """
        with self._any_channel() as channel:
            # Fenced brokers are listed since Kafka 4.0 only.
            channel.negotiate()
            cluster = channel.request(
                DescribeClusterRequest(
                    include_cluster_authorized_operations=False, include_fenced_brokers=True
                )
            )
            quorum = _quorum(channel)
        self._known = tuple((broker.host, broker.port) for broker in cluster.brokers)
        metadata = self._client.metadata()
        leaders = {
            TopicPartition(topic.name, each.partition_index): each.leader_id
            for topic in metadata.topics
            for each in topic.partitions
            if each.leader_id >= 0
        }
        brokers = [broker.node_id for broker in metadata.brokers]
        last_tiered = last_tiered_offsets(self._client, leaders)
        known = {each: last for each, last in last_tiered.items() if last is not None}
        look = _Look(monotonic_ms(), high_watermarks(self._client, leaders), known)
        directories = describe_log_dirs(self._client, brokers, None)
        groups = self._groups.look(self._client, brokers, leaders, look.high_watermarks)
        overview = _overview(cluster, metadata, quorum, directories, look, self._before, leaders, groups)
        self._before = look
        if self._tier is None:
            return overview
        figures = self._tier.look()
        topics = tuple(topic._replace(tier=figures.get(topic.name)) for topic in overview.topics)
        return overview._replace(topics=topics)

    def close(self) -> None:
        self._client.close()

    def _any_channel(self) -> BlockingChannel:
        failure: KafkaError | None = None
        for address in dict.fromkeys((*self._config.bootstrap_servers, *self._known)):
            try:
                return connected(self._config, address)
            except KafkaError as error:
                failure = error
        assert failure is not None, "there is at least one address"
        raise failure


def _quorum(channel: BlockingChannel) -> Any:
    """Return the quorum's voters; None if the broker does not report them."""
    topic = TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(PartitionData(partition_index=0),))
    try:
        answer = channel.request(DescribeQuorumRequest(topics=(topic,)))
    except KafkaError:
        return None
    if answer.error_code is not ErrorCode.none:
        return None
    return answer.topics[0].partitions[0]


def _overview(
    cluster: Any,
    metadata: Any,
    quorum: Any,
    directories: Mapping[BrokerId, BrokerDirectories],
    look: _Look,
    before: _Look | None,
    leaders: Mapping[TopicPartition, BrokerId],
    groups: GroupsSeen,
) -> Overview:
    rates = _rates(look, before)
    held, in_sync = Counter[BrokerId](), Counter[BrokerId]()
    troubled, partitions = list[Troubled](), 0
    for topic in metadata.topics:
        for each in topic.partitions:
            partitions += 1
            held.update(each.replica_nodes)
            in_sync.update(each.isr_nodes)
            if each.leader_id < 0 or set(each.replica_nodes) - set(each.isr_nodes):
                leader = None if each.leader_id < 0 else each.leader_id
                name = f"{topic.name}-{each.partition_index}"
                troubled.append(Troubled(name, leader, each.replica_nodes, each.isr_nodes))
    led = Counter(leaders.values())
    return Overview(
        cluster_id=cluster.cluster_id,
        controller_id=None if quorum is None else quorum.leader_id,
        leader_epoch=None if quorum is None else quorum.leader_epoch,
        voters=() if quorum is None else tuple(_voters(quorum)),
        brokers=tuple(
            _broker(broker, led, held, in_sync, directories.get(broker.broker_id), leaders, rates)
            for broker in sorted(cluster.brokers, key=lambda broker: broker.broker_id)
        ),
        topics=_topics(metadata, look, rates, directories),
        partitions=partitions,
        troubled=tuple(sorted(troubled, key=lambda each: (each.leader is not None, each.name))),
        groups=groups,
    )


def _rates(look: _Look, before: _Look | None) -> dict[TopicPartition, float]:
    if before is None or look.taken_ms <= before.taken_ms:
        return {}
    elapsed_s = (look.taken_ms - before.taken_ms) / 1_000
    return {
        each: max(0, offset - before.high_watermarks[each]) / elapsed_s
        for each, offset in look.high_watermarks.items()
        if each in before.high_watermarks
    }


def _voters(quorum: Any) -> Iterable[QuorumRow]:
    voters = quorum.current_voters
    end = max((quorum.high_watermark, *(voter.log_end_offset for voter in voters)))
    for voter in voters:
        if voter.replica_id != quorum.leader_id:
            yield QuorumRow(
                voter.replica_id, None if voter.log_end_offset < 0 else end - voter.log_end_offset
            )


def _broker(
    broker: Any,
    led: Counter[BrokerId],
    held: Counter[BrokerId],
    in_sync: Counter[BrokerId],
    directories: BrokerDirectories | None,
    leaders: Mapping[TopicPartition, BrokerId],
    rates: Mapping[TopicPartition, float],
) -> BrokerRow:
    own = [rate for each, rate in rates.items() if leaders.get(each) == broker.broker_id]
    return BrokerRow(
        node_id=broker.broker_id,
        address=f"{broker.host}:{broker.port}",
        rack=broker.rack,
        is_fenced=getattr(broker, "is_fenced", False),
        led=led[broker.broker_id],
        held=held[broker.broker_id],
        in_sync=in_sync[broker.broker_id],
        records_in_per_s=sum(own) if rates else None,
        log_bytes=None if directories is None else sum(directories.sizes.values()),
        usable_bytes=None if directories is None else directories.usable_bytes,
        offline_directories=0 if directories is None else directories.offline,
    )


def _topics(
    metadata: Any,
    look: _Look,
    rates: Mapping[TopicPartition, float],
    directories: Mapping[BrokerId, BrokerDirectories],
) -> tuple[TopicRow, ...]:
    records, size = Counter[str](), Counter[str]()
    rate: dict[str, float] = {}
    for each, offset in look.high_watermarks.items():
        records[each.topic] += offset
    tiered = Counter[str]()
    for each, offset in look.last_tiered.items():
        tiered[each.topic] += offset + 1
    for each, per_s in rates.items():
        rate[each.topic] = rate.get(each.topic, 0.0) + per_s
    for broker in directories.values():
        for each, size_bytes in broker.sizes.items():
            size[each.topic] += size_bytes
    rows = [
        TopicRow(
            name=topic.name,
            partitions=len(topic.partitions),
            records=records.get(topic.name),
            records_in_per_s=rate.get(topic.name),
            log_bytes=size.get(topic.name) if directories else None,
            tiered_records=tiered.get(topic.name),
        )
        for topic in metadata.topics
    ]
    return tuple(sorted(rows, key=lambda row: (-(row.records_in_per_s or 0), row.name)))
