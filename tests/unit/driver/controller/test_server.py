"""The controller's shell over real sockets and a real directory."""

import gc
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kio.schema.alter_client_quotas.v1 import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntityData, EntryData, OpData
from kio.schema.create_topics.v7 import CreateTopicsRequest
from kio.schema.describe_cluster.v1 import DescribeClusterRequest
from kio.schema.envelope.v0 import EnvelopeRequest
from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.find_coordinator.v0 import FindCoordinatorRequest
from kio.schema.find_coordinator.v6 import FindCoordinatorRequest as NewestFindCoordinatorRequest
from kio.schema.init_producer_id.v4 import InitProducerIdRequest
from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
from kio.schema.metadata.v11 import request as metadata_v11
from kio.schema.metadata.v12 import MetadataRequest
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.voters_record.v0.data import VotersRecord

from sparklog.driver.controller.active_controller import ActiveController
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.machine.controller import PARTITIONS_PER_DECISION
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.node.apis.parts import TOPICS_PER_PART
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.features import NEW_CLUSTER_FEATURES
from sparklog.node.metadata.framing import decode_record
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import PartitionChangeRecord
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.node.metadata_log.machine.control_records import read_control_record
from sparklog.node.metrics import controller as controller_metrics
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.frames import decode_response, request_encoder
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import check_crc, iterate_headers
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC_ID
from tests.application_secret import SECRET
from tests.unit.driver.controller.conversation import CLUSTER_ID, creatable, heartbeat, registration
from tests.unit.driver.controller.voters import Disk, Voters

DEADLINE_S = 30.0

ALICE = b"\0\0\5User\6alice\0\0"
"""A principal as brokers pass it on."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControllerServer]:
    """A controller that leads a quorum of one, and listens on loopback."""
    with serving(Disk(tmp_path / "voter"), tmp_path / "controller") as server:
        yield server


@contextmanager
def serving(
    disk: Disk, directory: Path, *, brokers_run: bool = False, **config: str
) -> Iterator[ControllerServer]:
    """A controller with an empty directory that leads the quorum of one whose log is on `disk`."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    server = ControllerServer(
        BrokerConfig.from_mapping(keys, racks=1),
        directory,
        secret=SECRET,
        expected_brokers=[ExpectedBroker(0, "rack-0")],
        new_cluster_id=CLUSTER_ID,
        brokers_run=brokers_run,
    )
    server.start()
    try:
        with Voters(port_of(server), {0: disk}):
            wait_for(lambda: server.image.offset is not None)
            yield server
    finally:
        server.stop()


def port_of(server: ControllerServer) -> int:
    """Return the port the controller listens on."""
    return int(server.bootstrap_servers.rpartition(":")[2])


def connect(server: ControllerServer) -> BlockingChannel:
    """Connect to the controller."""
    return BlockingChannel("127.0.0.1", port_of(server), "test", timeout_s=DEADLINE_S, login=SECRET.login)


def wait_for(condition: Callable[[], bool]) -> None:
    """Return as soon as the condition holds; fail after a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        pause.wait(0.005)


def join(server: ControllerServer, channel: BlockingChannel, broker_id: int, port: int) -> int:
    """Register and unfence a broker that is said to listen on `port`; return its epoch."""
    # The size of the cluster, one broker, does not count racks with names of their own.
    rack = "rack-0" if broker_id == 0 else f"zone-{broker_id}"
    reply = channel.request(registration(broker_id, port=port, rack=rack))
    assert reply.error_code is ErrorCode.none
    beat = channel.request(heartbeat(broker_id, reply.broker_epoch, server.image.offset or 0))
    assert (beat.error_code, beat.is_fenced) == (ErrorCode.none, False)
    return int(reply.broker_epoch)


def fetch(
    offset: int, *, max_wait_ms: int = 0, topic_id: UUID = CLUSTER_METADATA_TOPIC_ID, **fields: Any
) -> Any:
    """Return a Fetch of the metadata log."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
    return FetchRequest(
        max_wait=timedelta(milliseconds=max_wait_ms),
        min_bytes=1,
        max_bytes=1 << 20,
        topics=(FetchTopic(topic_id=topic_id, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def init_producer_id() -> Any:
    """Return what an idempotent producer asks."""
    return InitProducerIdRequest(transactional_id=None, transaction_timeout=timedelta(minutes=1))


def frame_of(request: Any, correlation_id: int) -> bytes:
    """Return a request's frame without its length."""
    chunks: list[Any] = list(request_encoder("client")(request, correlation_id))
    return b"".join(chunks)[4:]


def follow(channel: BlockingChannel) -> MetadataImage:
    """Return the image that the fetched log adds up to."""
    image = EMPTY_IMAGE
    while True:
        partition = channel.request(fetch(image.end_offset)).responses[0].partitions[0]
        assert partition.error_code is ErrorCode.none
        if image.end_offset == partition.high_watermark:
            return image
        records = bytes(partition.records)
        for position, header in iterate_headers(records):
            check_crc(records, position, header)
            values = (
                []
                if header.is_control
                else [record.value for record in read_records(records, header, position)]
            )
            image, _ = replay_records(
                image,
                [decode_record(value or b"") for value in values],
                header.last_offset,
                header.partition_leader_epoch,
            )


def test_log_that_brokers_fetch_adds_up_to_the_controllers_image(server: ControllerServer) -> None:
    """Brokers act on the log alone, so it must say everything that the controller has decided."""
    with connect(server) as channel:
        join(server, channel, 0, port_of(server))
        channel.request(CreateTopicsRequest(topics=(creatable("t", 3, 1, configs={"retention.ms": "9"}),)))
        image = follow(channel)
        assert image == server.image
        assert set(image.topics.by_name) == {"t"}
        assert image.features == NEW_CLUSTER_FEATURES


def test_log_begins_with_the_leader_change_and_the_voters(server: ControllerServer) -> None:
    """A voter tells by them where an epoch begins (KIP-595), a later driver who votes (KIP-853)."""
    with connect(server) as channel:
        records = bytes(channel.request(fetch(0)).responses[0].partitions[0].records)
    first, second, third = list(iterate_headers(records))[:3]
    entities = [
        read_control_record(record)
        for position, header in (first, second)
        for record in read_records(records, header, position)
    ]
    assert [type(entity) for entity in entities] == [LeaderChangeMessage, KRaftVersionRecord, VotersRecord]
    assert (first[1].base_offset, third[1].is_control) == (0, False)
    assert first[1].partition_leader_epoch == server.image.leader_epoch


def test_fetch_at_end_waits_for_the_next_record_and_then_for_its_commit(server: ControllerServer) -> None:
    """A broker must hear of an election as soon as it is durable, without asking again and again."""
    with connect(server) as follower, connect(server) as broker, ThreadPoolExecutor(1) as pool:
        end = server.image.end_offset
        follower.send(fetch(end, max_wait_ms=60_000))
        join(server, broker, 0, port_of(server))
        partition = pool.submit(follower.receive).result(DEADLINE_S).responses[0].partitions[0]
        appended = next(iterate_headers(bytes(partition.records)))[1]
        assert appended.base_offset == end
        while partition.high_watermark <= end:
            known = partition.high_watermark
            follower.send(fetch(appended.next_offset, max_wait_ms=60_000, high_watermark=known))
            partition = pool.submit(follower.receive).result(DEADLINE_S).responses[0].partitions[0]


def test_fetch_at_end_is_answered_empty_when_its_time_is_up(server: ControllerServer) -> None:
    """The follower learns from the answer that the controller is alive."""
    with connect(server) as follower:
        partition = (
            follower.request(fetch(server.image.end_offset, max_wait_ms=20)).responses[0].partitions[0]
        )
    assert (partition.error_code, bytes(partition.records)) == (ErrorCode.none, b"")


@pytest.mark.parametrize(
    ("request_", "error_code"),
    [
        (fetch(99), ErrorCode.offset_out_of_range),
        (fetch(0, topic_id=UUID(int=9)), ErrorCode.unknown_topic_id),
        (fetch(0, current_leader_epoch=0), ErrorCode.fenced_leader_epoch),
        (fetch(0, current_leader_epoch=99), ErrorCode.unknown_leader_epoch),
    ],
)
def test_fetch_beside_the_log_is_refused_at_once(
    server: ControllerServer, request_: Any, error_code: ErrorCode
) -> None:
    """A follower on a wrong path must not be kept waiting on it."""
    with connect(server) as channel:
        partition = channel.request(request_).responses[0].partitions[0]
    assert partition.error_code is error_code
    assert partition.current_leader.leader_epoch == server.image.leader_epoch


def test_fetch_after_divergence_is_told_where_to_truncate(tmp_path: Path) -> None:
    """A broker that holds records no majority has must drop them, by epoch and not by offset."""
    disk = Disk(tmp_path / "voter")
    with serving(disk, tmp_path / "first") as server:
        end, leader_epoch = server.image.end_offset, server.image.leader_epoch
    with serving(disk, tmp_path / "second") as server, connect(server) as channel:
        answer = channel.request(fetch(end + 2, last_fetched_epoch=leader_epoch)).responses[0].partitions[0]
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (leader_epoch, end)


def test_restart_with_an_empty_directory_has_everything_in_a_higher_epoch(tmp_path: Path) -> None:
    """What was answered is on the voters' disks; the driver may come back anywhere."""
    disk = Disk(tmp_path / "voter")
    with serving(disk, tmp_path / "first") as server:
        with connect(server) as channel:
            join(server, channel, 0, port_of(server))
            channel.request(CreateTopicsRequest(topics=(creatable("t", 1, 1),)))
        before = server.image
    with serving(disk, tmp_path / "second") as server:
        assert server.cluster_id == CLUSTER_ID
        assert server.image.topics == before.topics
        assert server.image.brokers == before.brokers
        assert server.image.leader_epoch > before.leader_epoch


def test_controller_after_one_that_led_but_committed_nothing_writes_the_size(tmp_path: Path) -> None:
    """The first one may end between its election and its first commit; scaling waits for the size."""
    with serving(Disk(tmp_path / "voter"), tmp_path / "controller", brokers_run=True) as server:
        wait_for(lambda: server.size_wanted == (1, 1))


def test_broker_whose_connection_and_listener_end_is_fenced_at_once(tmp_path: Path) -> None:
    """A killed broker's partitions must not wait for its session to run out."""
    session_timeout_ms = str(int(10 * DEADLINE_S * 1000))
    with (
        serving(
            Disk(tmp_path / "voter"), tmp_path / "controller", broker_session_timeout_ms=session_timeout_ms
        ) as server,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        with connect(server) as channel:
            join(server, channel, 0, listener.getsockname()[1])
            wait_for(lambda: server.serves_with(1))
            listener.close()
        wait_for(lambda: server.image.brokers[0].fenced)


def test_broker_whose_connection_ends_but_listens_keeps_its_session(tmp_path: Path) -> None:
    """A broken connection is no death; only the lease may decide then."""
    config = {"broker_session_timeout_ms": "1000", "broker_heartbeat_interval_ms": "100"}
    with serving(Disk(tmp_path / "voter"), tmp_path / "controller", **config) as server:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            with connect(server) as channel:
                join(server, channel, 0, listener.getsockname()[1])
                wait_for(lambda: server.serves_with(1))
                started = time.monotonic()
            wait_for(lambda: server.image.brokers[0].fenced)
        assert time.monotonic() - started >= 0.9


@pytest.mark.parametrize("host", ["a..b", "x" * 300, "nul\0", ""])
def test_broker_at_a_host_that_cannot_be_keeps_its_session(
    host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a broker says of itself, looking for it must not fail for other reasons than its absence."""
    caplog.set_level(logging.INFO)
    config = {"broker_session_timeout_ms": "1000", "broker_heartbeat_interval_ms": "100"}
    with serving(Disk(tmp_path / "voter"), tmp_path / "controller", **config) as server:
        with connect(server) as channel:
            request = registration(0)
            listeners = tuple(replace(listener, host=host) for listener in request.listeners)
            reply = channel.request(replace(request, listeners=listeners))
            beat = channel.request(heartbeat(0, reply.broker_epoch, server.image.offset or 0))
            assert not beat.is_fenced
        wait_for(lambda: server.image.brokers[0].fenced)
    gc.collect()  # tasks that nobody waited for tell of their errors when they go
    assert "its session decides" in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_broker_with_very_many_partitions_loses_all_of_them(server: ControllerServer) -> None:
    """Their new leaders are decided a part at a time, and nobody has to ask for the next part."""
    with connect(server) as channel, socket.create_server(("127.0.0.1", 0)) as listener:
        for broker_id in (0, 1):
            join(server, channel, broker_id, listener.getsockname()[1])
        topic = creatable("t", assignments=dict.fromkeys(range(2 * PARTITIONS_PER_DECISION + 1), (0, 1)))
        assert channel.request(CreateTopicsRequest(topics=(topic,))).topics[0].error_code is ErrorCode.none
        listener.close()
        server.report_broker_lost(0)
        wait_for(lambda: leaders(server) == {1})


def test_broker_with_very_many_partitions_registers_anew_when_it_leads_none(server: ControllerServer) -> None:
    """The answer waits for the last part: who it was before must be in no ISR any more."""
    with connect(server) as channel:
        for broker_id in (0, 1):
            join(server, channel, broker_id, port_of(server))
        topic = creatable("t", assignments=dict.fromkeys(range(2 * PARTITIONS_PER_DECISION + 1), (0, 1)))
        assert channel.request(CreateTopicsRequest(topics=(topic,))).topics[0].error_code is ErrorCode.none
        reply = channel.request(registration(0, incarnation=2))
        assert reply.error_code is ErrorCode.none
        assert server.image.brokers[0].broker_epoch == reply.broker_epoch
        assert leaders(server) == {1}


def leaders(server: ControllerServer) -> set[int | None]:
    """Return who leads any of topic `t`."""
    return {partition.leader for partition in server.image.topics.by_name["t"].partitions.values()}


def test_report_broker_lost_probes_and_fences(server: ControllerServer) -> None:
    """Spark may know of a death before the connection tells."""
    with connect(server) as channel, socket.create_server(("127.0.0.1", 0)) as listener:
        join(server, channel, 0, listener.getsockname()[1])
        server.report_broker_lost(0)
        wait_for(lambda: server.serves_with(1))
        listener.close()
        server.report_broker_lost(0)
        wait_for(lambda: server.image.brokers[0].fenced)


def test_shut_down_brokers_reaches_them_with_their_next_heartbeat(server: ControllerServer) -> None:
    """That is how a cluster stops."""
    with connect(server) as channel:
        epoch = join(server, channel, 0, port_of(server))
        server.shut_down_brokers()
        wait_for(lambda: channel.request(heartbeat(0, epoch, 1)).should_shut_down)


def test_server_serves_with_brokers_only_once_they_know_each_other(server: ControllerServer) -> None:
    """A client that hears of them all, and then from one of them of fewer, fails what it asked the others."""
    with connect(server) as channel:
        join(server, channel, 0, port_of(server))
        wait_for(lambda: server.serves_with(1))
        join(server, channel, 4, port_of(server))
        assert not server.know_each_other([0, 4])
        assert not server.serves_with(2)


def test_envelope_answers_the_client_in_its_own_version(server: ControllerServer) -> None:
    """A broker passes on bytes that it does not look into."""
    inner = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1)
    frame = frame_of(inner, 77)
    with connect(server) as channel:
        reply = channel.request(
            EnvelopeRequest(request_data=frame, request_principal=ALICE, client_host_address=b"\x7f\0\0\1")
        )
        assert reply.error_code is ErrorCode.none
        correlation_id, answer = decode_response(inner, reply.response_data)
        assert (correlation_id, answer.cluster_id) == (77, CLUSTER_ID)


def test_forwarded_request_is_asked_for_the_permissions_of_who_sent_it(tmp_path: Path) -> None:
    """Not for those of the broker, which may do everything."""
    config = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    inner = CreateTopicsRequest(
        topics=(creatable("t", 1, 1),), timeout=timedelta(seconds=1), validate_only=False
    )

    def create(channel: Any, principal: bytes) -> ErrorCode:
        reply = channel.request(
            EnvelopeRequest(
                request_data=frame_of(inner, 1),
                request_principal=principal,
                client_host_address=b"\x7f\0\0\1",
            )
        )
        if reply.response_data is None:
            return ErrorCode(reply.error_code)
        code: ErrorCode = decode_response(inner, reply.response_data)[1].topics[0].error_code
        return code

    disk = Disk(tmp_path / "voter")
    with serving(disk, tmp_path / "controller", **config) as server, connect(server) as channel:
        join(server, channel, 0, port_of(server))
        assert create(channel, ALICE) is ErrorCode.topic_authorization_failed
        assert create(channel, b"\0\0\5User\nANONYMOUS\0\0") is ErrorCode.none


@pytest.mark.parametrize("principal", [b"", b"\0\1\5User\6alice\0\0", b"\0\0\5User", b"\0\0\xff\xff\xff\xff"])
def test_envelope_whose_principal_cannot_be_read_is_refused(
    server: ControllerServer, principal: bytes
) -> None:
    """Nobody knows whose quotas and rights hold."""
    frame = frame_of(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1), 1)
    with connect(server) as channel:
        reply = channel.request(
            EnvelopeRequest(
                request_data=frame, request_principal=principal, client_host_address=b"\x7f\0\0\1"
            )
        )
        assert reply.error_code is ErrorCode.principal_deserialization_failure


def test_forwarded_request_is_held_to_the_quota_of_the_client_that_asked(server: ControllerServer) -> None:
    """Whichever broker he asks, and as whom the broker says that he is."""
    alice = (EntityData(entity_type="user", entity_name="alice"),)
    rate = OpData(key="controller_mutation_rate", value=0.01, remove=False)

    def create(channel: Any, principal: bytes) -> Any:
        request = CreateTopicsRequest(
            topics=tuple(creatable(f"{principal.hex()}-{number}", 1, 1) for number in range(2)),
            timeout=timedelta(seconds=1),
            validate_only=False,
        )
        reply = channel.request(
            EnvelopeRequest(
                request_data=frame_of(request, 1),
                request_principal=principal,
                client_host_address=b"\x7f\0\0\1",
            )
        )
        _, answer = decode_response(request, reply.response_data)
        return [topic.error_code for topic in answer.topics], answer.throttle_time

    with connect(server) as channel:
        join(server, channel, 0, port_of(server))
        answer = channel.request(
            AlterClientQuotasRequest(entries=(EntryData(entity=alice, ops=(rate,)),), validate_only=False)
        )
        assert answer.entries[0].error_code is ErrorCode.none
        outcomes, throttle_time = create(channel, ALICE)
        assert outcomes == [ErrorCode.none, ErrorCode.throttling_quota_exceeded]
        assert timedelta(seconds=85) < throttle_time <= timedelta(seconds=89)
        outcomes, throttle_time = create(channel, ALICE.replace(b"alice", b"carol"))
        assert (outcomes, throttle_time) == ([ErrorCode.none] * 2, timedelta())


@pytest.mark.parametrize("forwarded", [False, True])
def test_change_in_parts_beyond_its_quota_is_answered(server: ControllerServer, forwarded: bool) -> None:
    """A broker that never had the answer to one client's request would lose those of all others."""
    everybody = (EntityData(entity_type="user", entity_name=None),)
    rate = OpData(key="controller_mutation_rate", value=0.01, remove=False)
    request = CreateTopicsRequest(
        topics=tuple(creatable(f"t-{number}", 1, 1) for number in range(2 * TOPICS_PER_PART)),
        timeout=timedelta(seconds=1),
        validate_only=False,
    )
    with connect(server) as channel:
        join(server, channel, 0, port_of(server))
        channel.request(
            AlterClientQuotasRequest(entries=(EntryData(entity=everybody, ops=(rate,)),), validate_only=False)
        )
        if forwarded:
            reply = channel.request(
                EnvelopeRequest(
                    request_data=frame_of(request, 1),
                    request_principal=ALICE,
                    client_host_address=b"\x7f\0\0\1",
                )
            )
            _, answer = decode_response(request, reply.response_data)
        else:
            answer = channel.request(request)
    codes = [topic.error_code for topic in answer.topics]
    assert codes == [ErrorCode.none] + [ErrorCode.throttling_quota_exceeded] * (2 * TOPICS_PER_PART - 1)
    assert timedelta(seconds=80) < answer.throttle_time <= timedelta(seconds=89)


def test_envelope_with_garbage_or_foreign_request_is_refused(server: ControllerServer) -> None:
    """What a client wrote reaches the controller unchecked by the broker."""
    answered_by_brokers = [heartbeat(0, 1, 1), init_producer_id(), FindCoordinatorRequest(key="g")]
    frames = [b"", b"\xff" * 40, *[frame_of(request, 1) for request in answered_by_brokers]]
    with connect(server) as channel:
        for frame in frames:
            reply = channel.request(
                EnvelopeRequest(
                    request_data=frame, request_principal=ALICE, client_host_address=b"\x7f\0\0\1"
                )
            )
            assert reply.error_code is not ErrorCode.none
            assert reply.response_data is None


def test_metadata_waits_until_a_broker_is_live(server: ControllerServer) -> None:
    """librdkafka, told of topics and of no broker, may drop all addresses that it has, for ever."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name="t"),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    with connect(server) as channel, ThreadPoolExecutor(1) as client:

        def ask() -> Any:
            with connect(server) as asking:
                return asking.request(request)

        early = client.submit(ask)
        reply = channel.request(registration(0, port=9999))
        with pytest.raises(TimeoutError):
            early.result(0.2)
        channel.request(heartbeat(0, reply.broker_epoch, server.image.offset or 0))
        assert [broker.port for broker in early.result(DEADLINE_S).brokers] == [9999]
        beat = heartbeat(0, reply.broker_epoch, server.image.offset or 0)
        channel.request(replace(beat, want_fence=True))
        wait_for(lambda: server.image.brokers[0].fenced)
        late = client.submit(ask)
        with pytest.raises(TimeoutError):
            late.result(0.2)
        channel.request(beat)
        assert [broker.port for broker in late.result(DEADLINE_S).brokers] == [9999]


def test_metadata_of_unknown_topic_creates_it(server: ControllerServer) -> None:
    """Clients that bootstrap from the controller get what they would get from a broker."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name="new"),),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    with connect(server) as channel:
        join(server, channel, 0, port_of(server))
        assert channel.request(request).topics[0].error_code is ErrorCode.unknown_topic_or_partition
        wait_for(lambda: "new" in server.image.topics.by_name)
        assert channel.request(request).topics[0].error_code is ErrorCode.none


def test_metadata_by_id_before_it_may_is_refused_and_the_connection_lives(server: ControllerServer) -> None:
    """As brokers do: a client that bootstraps here is told what is wrong, once."""
    request = metadata_v11.MetadataRequest(
        topics=(metadata_v11.MetadataRequestTopic(topic_id=UUID(int=9), name=None),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    with connect(server) as channel:
        for _ in range(2):
            (topic,) = channel.request(request).topics
            assert (topic.name, topic.error_code) == ("", ErrorCode.invalid_request)


def test_topics_created_because_a_client_asked_count_for_his_quota(server: ControllerServer) -> None:
    """Whoever may create nothing more must not get around that by asking for topics that are not there."""
    everybody = (EntityData(entity_type="user", entity_name=None),)
    rate = OpData(key="controller_mutation_rate", value=0.0001, remove=False)

    def asked(name: str) -> Any:
        topic = MetadataRequestTopic(topic_id=None, name=name)
        return MetadataRequest(
            topics=(topic,), allow_auto_topic_creation=True, include_topic_authorized_operations=False
        )

    with connect(server) as channel:
        join(server, channel, 0, port_of(server))
        channel.request(
            AlterClientQuotasRequest(entries=(EntryData(entity=everybody, ops=(rate,)),), validate_only=False)
        )
        # The first may be larger than what is left; it leaves the bucket empty.
        for name in ("first", "second"):
            channel.request(asked(name))
            wait_for(lambda: "first" in server.image.topics.by_name)
        refused = channel.request(asked("second"))
        assert refused.topics[0].error_code is ErrorCode.unknown_topic_or_partition
        assert set(server.image.topics.by_name) == {"first"}


def test_init_producer_id_is_answered_when_the_id_is_in_the_log(server: ControllerServer) -> None:
    """A client's first address may be the only one it has yet; an id that a crash forgets is given twice."""
    with connect(server) as channel:
        for producer_id in (0, 1):
            reply = channel.request(init_producer_id())
            assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (
                ErrorCode.none,
                producer_id,
                0,
            )
            assert server.image.next_producer_id == producer_id + 1
        assert follow(channel).next_producer_id == 2


def test_init_producer_id_is_offered_in_kafkas_versions(server: ControllerServer) -> None:
    """Version 6 is for two-phase commit, which Kafka does not advertise yet."""
    with connect(server) as channel:
        assert channel.negotiate()[ApiKey.INIT_PRODUCER_ID] == (0, 5)


def test_find_coordinator_at_the_controller_makes_its_topic_and_names_its_leader(
    server: ControllerServer,
) -> None:
    """A client that bootstraps from the controller finds its coordinator as it would at a broker."""
    with connect(server) as channel:
        join(server, channel, 0, port_of(server))
        request = NewestFindCoordinatorRequest(key_type=0, coordinator_keys=("g",))
        (found,) = channel.request(request).coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.coordinator_not_available, -1)
        wait_for(lambda: CONSUMER_OFFSETS_TOPIC in server.image.topics.by_name)
        (found,) = channel.request(request).coordinators
        assert (found.error_code, found.node_id, found.port) == (ErrorCode.none, 0, port_of(server))
        oldest = channel.request(FindCoordinatorRequest(key="g"))
        assert (oldest.error_code, oldest.node_id) == (ErrorCode.none, 0)
    image = server.image
    assert len(image.topics.by_name[CONSUMER_OFFSETS_TOPIC].partitions) == 50
    assert image.topic_configs(CONSUMER_OFFSETS_TOPIC) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_admin_client_manages_topics_at_the_controller(server: ControllerServer) -> None:
    """One address must do for Kafka's tools, wherever Spark puts the brokers."""
    with connect(server) as channel:
        # The only broker is said to listen where the controller does, so the client stays with it.
        join(server, channel, 0, port_of(server))
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        try:
            admin.create_topics([NewTopic("flights", 2, 1, topic_configs={"retention.ms": "1000"})])
            assert set(admin.list_topics()) == {"flights"}
            admin.delete_topics(["flights"])
            assert set(admin.list_topics()) == set()
        finally:
            admin.close()


def test_subscriber_is_told_of_each_committed_image_and_why_a_broker_went(server: ControllerServer) -> None:
    """Whoever shows what happened needs every image in between, and a reason that no record holds."""
    told: list[tuple[MetadataImage, Mapping[int, str]]] = []
    server.subscribe(lambda image, reasons: told.append((image, reasons)))
    with connect(server) as channel:
        join(server, channel, 0, port_of(server))
        server.shut_down_broker(0, "its executor goes")
        wait_for(lambda: told[-1][0].brokers[0].in_controlled_shutdown)
    registered, unfenced, leaving = told
    assert [image.brokers[0].fenced for image, _ in told] == [True, False, False]
    assert [registered[1], unfenced[1], leaving[1]] == [{}, {}, {0: "its executor goes"}]
    assert leaving[0] is server.image


def test_quorum_is_described_from_another_thread_and_nothing_is_after_the_end(
    server: ControllerServer,
) -> None:
    """The loop is asked once a second by who shows the cluster, who must not wait for one that has gone."""
    described = server.ask(ActiveController.describe_quorum, DEADLINE_S)
    assert described is not None
    assert described.has_majority
    assert described.high_watermark == described.log_end_offset == server.image.end_offset
    assert [(each.key.node_id, each.is_voter, each.log_end_offset) for each in described.replicas] == [
        (0, True, described.log_end_offset)
    ]
    server.stop()
    assert server.ask(ActiveController.describe_quorum, timeout_s=0.01) is None


def figures(server: ControllerServer) -> tuple[float | None, float | None]:
    """Return ActiveControllerCount and MetadataErrorCount as they were read last."""
    received = server.broker_metrics.latest().get(CONTROLLER_ID)
    values = {} if received is None else received.values
    return (
        values.get(controller_metrics.ACTIVE_CONTROLLERS.of()),
        values.get(controller_metrics.METADATA_ERRORS.of()),
    )


def test_record_that_cannot_be_applied_is_counted_though_it_ends_the_controller(
    server: ControllerServer,
) -> None:
    """The alarm is on the figure: a controller that takes it along when it ends rings nobody."""
    wait_for(lambda: figures(server) == (1, 0))
    of_no_topic = PartitionChangeRecord(topic_id=UUID(int=99), partition_id=0)
    server.ask(lambda active: active.decide(ControllerResult([of_no_topic], None)), DEADLINE_S)
    wait_for(lambda: server.failure is not None)
    wait_for(lambda: figures(server) == (0, 1))


def test_snapshot_that_cannot_be_written_is_counted_and_ends_nothing(tmp_path: Path) -> None:
    """Without snapshots every start replays everything there ever was; somebody has to hear of it in time."""
    disk, directory = Disk(tmp_path / "voter"), tmp_path / "controller"
    with (
        serving(disk, directory, metadata_log_max_record_bytes_between_snapshots="1") as server,
        connect(server) as channel,
    ):
        (log_directory,) = {path.parent for path in directory.rglob("*.log")}
        log_directory.rename(tmp_path / "elsewhere")
        join(server, channel, 0, port=1)
        wait_for(lambda: (figures(server)[1] or 0) > 0)
        assert server.failure is None
