"""Topics that are not there or may not be: what each API that names one answers, at brokers and controller.

A client tells a typo from a topic that is only not there yet by the code, and retries by it.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.alter_configs.v2 import request as alter_configs
from kio.schema.create_partitions.v3 import request as create_partitions
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.delete_records.v2 import request as delete_records
from kio.schema.delete_topics.v6 import request as delete_topics
from kio.schema.describe_configs.v4 import request as describe_configs
from kio.schema.describe_topic_partitions.v0 import request as describe_topic_partitions
from kio.schema.elect_leaders.v2 import request as elect_leaders
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import request as fetch_by_name
from kio.schema.fetch.v17 import request as fetch_by_id
from kio.schema.incremental_alter_configs.v1 import request as incremental_alter_configs
from kio.schema.list_offsets.v10 import request as list_offsets
from kio.schema.metadata.v13 import request as metadata
from kio.schema.offset_for_leader_epoch.v4 import request as offset_for_leader_epoch
from kio.schema.produce.v12 import request as produce_by_name
from kio.schema.produce.v13 import request as produce_by_id

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.cluster import LocalCluster

TIMEOUT = timedelta(seconds=10)
NO_SUCH_TOPIC = "never-created"
NO_SUCH_ID = UUID(int=0x5A17)
TOPIC_RESOURCE = 2
SET, APPEND = 0, 2
BATCH = build_batch([SimpleRecord(value=b"v", timestamp_ms=1_700_000_000_000)])


def ask(address: tuple[str, int], request: Any) -> Any:
    """Return the answer to a request, on a connection of its own."""
    with BlockingChannel(*address, "bad", timeout_s=15) as channel:
        return channel.request(request)


def error_codes(response: Any) -> Iterator[ErrorCode]:
    """Yield every error in a response, wherever it stands in it."""
    if isinstance(response, ErrorCode):
        if response is not ErrorCode.none:
            yield response
    elif is_dataclass(response):
        for field in fields(response):
            yield from error_codes(getattr(response, field.name))
    elif isinstance(response, tuple):
        for item in response:
            yield from error_codes(item)


@pytest.fixture(params=["broker", "controller"])
def either(request: pytest.FixtureRequest, cluster: LocalCluster) -> tuple[str, int]:
    """A broker's address, and the controller's: both take what administers."""
    if request.param == "broker":
        return cluster.address(0)
    host, _, port = cluster.controller.bootstrap_servers.rpartition(":")
    return host, int(port)


# --- topics and partitions that are not there ---------------------------------------------------------


def produce(name: str, partition: int) -> Any:
    data = (produce_by_name.PartitionProduceData(index=partition, records=BATCH),)
    topics = (produce_by_name.TopicProduceData(name=name, partition_data=data),)
    return produce_by_name.ProduceRequest(acks=-1, timeout=TIMEOUT, topic_data=topics)


def fetch(name: str, partition: int) -> Any:
    data = (fetch_by_name.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=100),)
    return fetch_by_name.FetchRequest(
        max_wait=TIMEOUT,
        min_bytes=1,
        topics=(fetch_by_name.FetchTopic(topic=name, partitions=data),),
        forgotten_topics_data=(),
    )


def offsets(name: str, partition: int) -> Any:
    data = (list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=-1),)
    return list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(list_offsets.ListOffsetsTopic(name=name, partitions=data),),
        timeout=TIMEOUT,
    )


def epoch_end(name: str, partition: int) -> Any:
    data = (offset_for_leader_epoch.OffsetForLeaderPartition(partition=partition, leader_epoch=0),)
    topics = (offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=data),)
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def deletion_of_records(name: str, partition: int) -> Any:
    data = (delete_records.DeleteRecordsPartition(partition_index=partition, offset=0),)
    topics = (delete_records.DeleteRecordsTopic(name=name, partitions=data),)
    return delete_records.DeleteRecordsRequest(topics=topics, timeout=TIMEOUT)


def election(name: str, partition: int) -> Any:
    topics = (elect_leaders.TopicPartitions(topic=name, partitions=(partition,)),)
    return elect_leaders.ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout=TIMEOUT)


OF_PARTITIONS: list[Callable[[str, int], Any]] = [
    produce,
    fetch,
    offsets,
    epoch_end,
    deletion_of_records,
    election,
]


@pytest.mark.parametrize("request_for", OF_PARTITIONS)
def test_unknown_topic_or_partition_is_said_to_be_unknown(
    cluster: LocalCluster, survivor: str, request_for: Callable[[str, int], Any]
) -> None:
    """Every client looks the topic up again at this code, and gives up in the end."""
    leader = cluster.leader(survivor)
    assert leader is not None
    for name, partition in [
        (NO_SUCH_TOPIC, 0),
        ("", 0),
        ("no spaces", 0),
        ("x" * 250, 0),
        ("__cluster_metadata", 0),
        (survivor, 1),
        (survivor, -1),
        (survivor, 2**31 - 1),
    ]:
        response = ask(cluster.address(leader), request_for(name, partition))
        assert list(error_codes(response)) == [ErrorCode.unknown_topic_or_partition], (name, partition)


@pytest.mark.parametrize("topic_id", [NO_SUCH_ID, None, UUID(int=1)], ids=["unknown", "zero", "metadata"])
def test_unknown_topic_id_is_said_to_be_unknown(
    cluster: LocalCluster, survivor: str, topic_id: UUID | None
) -> None:
    """An id that is gone belongs to a topic that was deleted, whatever has its name now."""
    data = (produce_by_id.PartitionProduceData(index=0, records=BATCH),)
    produced = produce_by_id.ProduceRequest(
        acks=1,
        timeout=TIMEOUT,
        topic_data=(produce_by_id.TopicProduceData(topic_id=topic_id, partition_data=data),),
    )
    partition = fetch_by_id.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    fetched = fetch_by_id.FetchRequest(
        max_wait=TIMEOUT,
        min_bytes=1,
        topics=(fetch_by_id.FetchTopic(topic_id=topic_id, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    for request in (produced, fetched):
        assert list(error_codes(ask(cluster.address(0), request))) == [ErrorCode.unknown_topic_id]


def extension(name: str) -> Any:
    topics = (create_partitions.CreatePartitionsTopic(name=name, count=2, assignments=None),)
    return create_partitions.CreatePartitionsRequest(topics=topics, timeout=TIMEOUT, validate_only=False)


def deletion(name: str | None, topic_id: UUID | None = None) -> Any:
    topics = (delete_topics.DeleteTopicState(name=name, topic_id=topic_id),)
    return delete_topics.DeleteTopicsRequest(topics=topics, timeout=TIMEOUT)


def look_up(name: str | None, topic_id: UUID | None = None, *, create: bool = False) -> Any:
    return metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(topic_id=topic_id, name=name),),
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=False,
    )


def description(name: str) -> Any:
    topics = (describe_topic_partitions.TopicRequest(name=name),)
    return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=topics)


def description_of_configs(name: str) -> Any:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    return describe_configs.DescribeConfigsRequest(resources=(resource,))


def alteration(name: str, key: str, value: str | None, operation: int = SET) -> Any:
    config = incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configs=(config,)
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=False
    )


def replacement(name: str, key: str, value: str | None) -> Any:
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=name,
        configs=(alter_configs.AlterableConfig(name=key, value=value),),
    )
    return alter_configs.AlterConfigsRequest(resources=(resource,), validate_only=False)


def test_administration_of_an_unknown_topic_says_that_it_is_unknown(
    either: tuple[str, int], survivor: str
) -> None:
    """Tools print this; and none of it may create anything."""
    unknown = ErrorCode.unknown_topic_or_partition
    for request in (
        extension(NO_SUCH_TOPIC),
        deletion(NO_SUCH_TOPIC),
        look_up(NO_SUCH_TOPIC),
        description(NO_SUCH_TOPIC),
        description_of_configs(NO_SUCH_TOPIC),
        alteration(NO_SUCH_TOPIC, "retention.ms", "1"),
        replacement(NO_SUCH_TOPIC, "retention.ms", "1"),
        election(NO_SUCH_TOPIC, 0),
        election(survivor, 7),
    ):
        assert list(error_codes(ask(either, request))) == [unknown], request
    for request in (deletion(None, NO_SUCH_ID), look_up(None, NO_SUCH_ID)):
        assert list(error_codes(ask(either, request))) == [ErrorCode.unknown_topic_id], request


# --- topics that may not be ---------------------------------------------------------------------------

ILLEGAL_NAMES = ["", ".", "..", "no spaces", "sl/ash", "../../etc/passwd", "ümlaut", "x" * 250, "nul\0"]


def creation(name: str, config: tuple[str, str | None] | None = None, **numbers: int) -> Any:
    configs = () if config is None else (create_topics.CreatableTopicConfig(name=config[0], value=config[1]),)
    given = {"num_partitions": -1, "replication_factor": -1} | numbers
    topic = create_topics.CreatableTopic(name=name, assignments=(), configs=configs, **given)
    return create_topics.CreateTopicsRequest(topics=(topic,), timeout=TIMEOUT)


def test_illegal_topic_name_is_refused_and_creates_nothing(
    cluster: LocalCluster, either: tuple[str, int], survivor: str
) -> None:
    """A topic's name becomes a directory's."""
    before = set(cluster.image.topics.by_name)
    for name in ILLEGAL_NAMES:
        for request in (creation(name), look_up(name), look_up(name, create=True)):
            response = ask(either, request)
            assert list(error_codes(response)) == [ErrorCode.invalid_topic_exception], (name, request)
    assert set(cluster.image.topics.by_name) == before


ILLEGAL_NUMBERS = [
    ({"num_partitions": 0}, ErrorCode.invalid_partitions),
    ({"num_partitions": -7}, ErrorCode.invalid_partitions),
    ({"num_partitions": 2**31 - 1}, ErrorCode.policy_violation),
    ({"replication_factor": 0}, ErrorCode.invalid_replication_factor),
    ({"replication_factor": 4}, ErrorCode.invalid_replication_factor),
    ({"replication_factor": 32_767}, ErrorCode.invalid_replication_factor),
]


def test_illegal_numbers_of_partitions_and_replicas_are_refused(
    cluster: LocalCluster, either: tuple[str, int], survivor: str
) -> None:
    """Nothing is reserved for a number that is only claimed."""
    for numbers, error_code in ILLEGAL_NUMBERS:
        assert list(error_codes(ask(either, creation("impossible", **numbers)))) == [error_code], numbers
    assert "impossible" not in cluster.image.topics.by_name


ILLEGAL_CONFIGS = [
    ("retention.ms", "soon"),
    ("retention.ms", "-2"),
    ("retention.ms", "9223372036854775808"),
    ("retention.ms", ""),
    ("segment.bytes", "1"),
    ("max.message.bytes", "-1"),
    ("min.insync.replicas", "0"),
    ("cleanup.policy", "shred"),
    ("compression.type", "rar"),
    ("compression.zstd.level", "99"),
    ("message.timestamp.type", "Yesterday"),
    ("unclean.leader.election.enable", "perhaps"),
    ("no.such.key", "1"),
    ("", "1"),
    ("num.partitions", "3"),
]


def test_illegal_config_is_refused_and_changes_nothing(
    cluster: LocalCluster, either: tuple[str, int], survivor: str
) -> None:
    """What a broker could not act on must not get into the log that every broker replays."""
    before = ask(either, description_of_configs(survivor))
    assert list(error_codes(before)) == []
    for key, value in ILLEGAL_CONFIGS:
        for request in (
            creation("misconfigured", (key, value)),
            alteration(survivor, key, value),
            replacement(survivor, key, value),
        ):
            assert list(error_codes(ask(either, request))) == [ErrorCode.invalid_config], (
                key,
                value,
                request,
            )
    for operation, value in [(9, "1"), (-1, "1"), (SET, None)]:
        response = ask(either, alteration(survivor, "retention.ms", value, operation))
        assert list(error_codes(response)) == [ErrorCode.invalid_request], (operation, value)
    response = ask(either, alteration(survivor, "retention.ms", "1", APPEND))
    assert list(error_codes(response)) == [ErrorCode.invalid_config]
    assert "misconfigured" not in cluster.image.topics.by_name
    assert ask(either, description_of_configs(survivor)) == before
