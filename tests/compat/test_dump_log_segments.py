"""Kafka's own DumpLogSegments reads every file that logs and clusters leave, and finds nothing wrong."""

from pathlib import Path
from typing import Any

import pytest

from sparklog.node.metadata.framing import decode_record
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.records.batch import iterate_headers, read_header
from sparklog.protocol.records.builder import read_records
from tests.cluster import LocalCluster, wait_for
from tests.compat.kafka_programs import (
    DUMPED_SUFFIXES,
    KafkaProgram,
    as_kafka_shows_it,
    check_files,
    dump_metadata,
    files_of_logs,
)
from tests.compat.librdkafka import create_topic, produce
from tests.unit.sparklog.node.storage.batches import (
    START_MS,
    load_producers_again,
    make_batch,
    make_marker,
)

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)


def write_log(directory: Path, *, crash: bool) -> None:
    """Write segments with everything: epochs, uneven timestamps, producers, an aborted transaction."""
    log = Log.open(directory, CONFIG, now_ms=START_MS)
    for i in range(120):
        batch = make_batch(
            3,
            timestamp_ms=START_MS + i * 10 - i % 7 * 15,
            producer_id=5,
            producer_epoch=1,
            base_sequence=3 * i,
            value_bytes=100,
        )
        log.append_as_leader(batch, read_header(batch), i // 40, START_MS)
    log.truncate_to(300)
    load_producers_again(log)
    end = log.log_end_offset
    log.append_as_follower(
        make_batch(
            2,
            base_offset=end,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
            leader_epoch=3,
        )
        + make_marker(base_offset=end + 2, producer_id=1, producer_epoch=0, commit=False, leader_epoch=3),
        START_MS,
    )
    log.close(clean=not crash)
    if crash:
        Log.open(directory, CONFIG, now_ms=START_MS).close()


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "recovered"])
def test_dump_log_segments_accepts_every_file(
    tmp_path: Path, kafka_program: KafkaProgram, crash: bool
) -> None:
    """Operators inspect and repair with Kafka's tools; they must work on these directories."""
    write_log(tmp_path / "t-0", crash=crash)
    files = files_of_logs(tmp_path)
    assert {file.suffix for file in files} == set(DUMPED_SUFFIXES)
    check_files(kafka_program, files)


@pytest.fixture(scope="module")
def stopped_cluster(tmp_path_factory: pytest.TempPathFactory, kafka_program: KafkaProgram) -> Path:
    """The directory of a cluster that rolled segments, lost a broker, took it back, and was stopped."""
    directory = tmp_path_factory.mktemp("cluster")
    records = [{"key": b"%d" % number, "value": b"%0999d" % number} for number in range(2_500)]
    with LocalCluster(brokers=3, directory=directory) as cluster:
        create_topic(
            cluster.bootstrap_servers,
            "t",
            partitions=2,
            config={"segment.bytes": str(2**20), "index.interval.bytes": "512"},
        )
        produce(cluster.bootstrap_servers, "t", records, **{"batch.size": 5_000})
        leader = cluster.leader("t")
        assert leader is not None
        cluster.kill(leader)
        produce(cluster.bootstrap_servers, "t", records, **{"compression.type": "zstd"})
        cluster.restart(leader)
        wait_for(lambda: all(len(cluster.in_sync("t", number)) == 3 for number in (0, 1)), "all in sync")
        produce(cluster.bootstrap_servers, "t", records[:100], **{"compression.type": "snappy"})
    return directory


def test_dump_log_segments_accepts_every_log_of_a_stopped_cluster(
    stopped_cluster: Path, kafka_program: KafkaProgram
) -> None:
    """What followers, recoveries and a shutdown leave is read as well, not only what one log wrote."""
    logs = [
        stopped_cluster / f"broker-{broker}" / f"t-{partition}" for broker in range(3) for partition in (0, 1)
    ]
    assert all(len(list(log.glob("*.log"))) > 1 for log in logs), "segments were to be rolled"
    check_files(kafka_program, files_of_logs(stopped_cluster))


def metadata_records(segment: bytes) -> list[Any]:
    """Return the records of a metadata log's segment as we read them."""
    return [
        decode_record(record.value or b"")
        for position, header in iterate_headers(segment)
        if not header.is_control
        for record in read_records(segment, header, position)
    ]


def test_metadata_decoder_shows_the_whole_history_that_every_broker_has_a_copy_of(
    stopped_cluster: Path, kafka_program: KafkaProgram
) -> None:
    """What was decided, and when, can be read with Kafka's tool, from any node that is left."""
    paths = sorted(
        stopped_cluster.glob(f"broker-*/__cluster_metadata-0/{0:020}.log"),
        key=lambda path: path.stat().st_size,
    )
    assert len(paths) == 3
    original = paths[-1]
    decided = metadata_records(original.read_bytes())
    assert dump_metadata(kafka_program, original) == [as_kafka_shows_it(record) for record in decided]
    assert {
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "BrokerRegistrationChangeRecord",
        "TopicRecord",
        "ConfigRecord",
        "PartitionRecord",
        "ProducerIdsRecord",
        "PartitionChangeRecord",
    } == {type(record).__name__ for record in decided}
    copies = [path.read_bytes() for path in paths]
    # A broker that left first may lack the end, which says that others left.
    assert all(copies[-1].startswith(copy) for copy in copies)
    assert all("PartitionChangeRecord" in {type(r).__name__ for r in metadata_records(c)} for c in copies)


def test_storage_tool_knows_a_brokers_directory(
    stopped_cluster: Path, kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    """Kafka's own reader of meta.properties takes the directory for one of Kafka's."""
    properties = tmp_path / "broker.properties"
    properties.write_text(
        "process.roles=broker\n"
        "node.id=1\n"
        "controller.quorum.voters=3000@127.0.0.1:1\n"
        "controller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:0\n"
        f"log.dirs={stopped_cluster / 'broker-1'}\n"
    )
    output = kafka_program("kafka.tools.StorageTool", "info", "--config", str(properties)).stdout
    assert "Found metadata: {cluster.id=test-" in output
    assert "node.id=1, version=1}" in output
    assert "problem" not in output
