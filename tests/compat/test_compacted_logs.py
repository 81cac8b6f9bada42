"""Logs that were cleaned or moved here and by Apache Kafka: either goes on with what the other has left."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from benchmarks.java_libraries import kafka_command
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.storage.checkpoints import read_offsets, write_offsets
from sparklog.node.storage.directory.log_directory import CLEAN_SHUTDOWN_MARKER
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import TopicPartition as Partition
from tests.chaos.application import free_port
from tests.cluster import wait_for
from tests.compat.kafka_programs import KafkaProgram, check_files, files_of_logs
from tests.compat.librdkafka import consume
from tests.unit.executor.log_dir_moves.test_directory_moves import alter
from tests.unit.sparklog.node.storage.batches import START_MS, make_marker
from tests.unit.sparklog.node.storage.cleanings import clean_round, records_from, state_of
from tests.unit.sparklog.node.storage.test_cleaning import CONFIG, DAY_MS, fill, put

CHECKPOINT: Final = "cleaner-offset-checkpoint"
RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
MOVED_RECORDS: Final = 6


def test_dump_log_segments_accepts_a_log_that_was_cleaned(
    tmp_path: Path, kafka_program: KafkaProgram
) -> None:
    """Delete horizons, batches without records, markers and indexes are as Kafka writes them."""
    log = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS)
    fill(log, 60)
    for producer_id, commit in ((1, False), (2, True)):
        end = log.log_end_offset
        batch = build_batch(
            [SimpleRecord(b"key-1", b"transactional", (), START_MS)],
            base_offset=end,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        marker = make_marker(base_offset=end + 1, producer_id=producer_id, producer_epoch=0, commit=commit)
        log.append_as_follower(batch + marker, START_MS)
    put(log, (b"key-1", b"x"), (b"key-3", None))
    fill(log, 60)
    for days in range(3):
        log.roll(START_MS)
        clean_round(log, START_MS + days * DAY_MS)
        put(log, (b"key-2", None))
    log.close()
    log.segments.delete_files_due(START_MS + DAY_MS)
    files = files_of_logs(tmp_path)
    assert {".log", ".index", ".timeindex", ".txnindex"} <= {file.suffix for file in files}
    check_files(kafka_program, files, may_have_gaps=True)


class KafkaNode:
    """One node of Apache Kafka's that is controller and broker."""

    def __init__(self, directory: Path, kafka_program: KafkaProgram) -> None:
        self.directories = directory / "logs", directory / "other-logs"
        port, controller_port = free_port(), free_port()
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._properties = directory / "server.properties"
        self._output = directory / "server.log"
        self._properties.write_text(
            "process.roles=broker,controller\n"
            "node.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}\n"
            f"listeners=PLAINTEXT://{self.bootstrap_servers},CONTROLLER://127.0.0.1:{controller_port}\n"
            "controller.listener.names=CONTROLLER\n"
            "log.cleaner.backoff.ms=100\n"
            "log.initial.task.delay.ms=100\n"
            f"log.dirs={','.join(map(str, self.directories))}\n"
        )
        format_it = ("format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(self._properties))
        kafka_program("kafka.tools.StorageTool", *format_it)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it for as long as it is needed; it is stopped in order."""
        command = kafka_command("kafka.Kafka", str(self._properties), java_options=("-Xmx256m",))
        with (
            self._output.open("ab") as output,
            subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process,
        ):
            try:
                wait_for(self._answers, "Apache Kafka to answer", timeout_s=60)
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()

    def _answers(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def directory_of(self, partition: Partition) -> Path:
        """Return the directory in which the partition's log lies."""
        (found,) = (path for path in self.directories if (path / str(partition)).exists())
        return found

    def produce(self, rounds: int, compression: str) -> None:
        """Write ten keys over and over, two of them tombstones at last."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "compression.type": compression})
        for number in range(rounds):
            for key in range(10):
                value = None if key < 2 and number == rounds - 1 else b"%d-%s" % (number, b"v" * 50)
                producer.produce("t", value, b"key-%d" % key, partition=0)
            assert producer.flush(20) == 0

    def table(self) -> dict[bytes, bytes]:
        """Return what a consumer from the start makes of the topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        table: dict[bytes, bytes] = {}
        try:
            consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(20)
                assert message is not None
                if message.error() is not None:
                    return table
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                if value is None:
                    table.pop(key, None)
                else:
                    assert isinstance(value, bytes)
                    table[key] = value
        finally:
            consumer.close()


def cleaned_by_kafka(checkpoint: Path) -> int:
    """Return up to where Kafka has cleaned the topic, 0 if it has not said so yet."""
    if not checkpoint.exists() or not checkpoint.read_bytes():
        return 0
    return read_offsets(checkpoint).get(Partition("t", 0), 0)


def throttle(admin: AdminClient, operation: AlterConfigOpType, value: str | None) -> None:
    """Change how fast the node copies between its directories."""
    entry = ConfigEntry(RATE, value, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(20)


def begin_move(node: KafkaNode, admin: AdminClient) -> tuple[Path, Path]:
    """Have Apache Kafka begin to move a log that it cannot copy in one go; return from where and to where."""
    # First of all: whoever takes records of a topic has acted on what was decided before it was made.
    throttle(admin, AlterConfigOpType.SET, "1")
    admin.create_topics([NewTopic("m", 1, 1)])["m"].result(20)
    producer = Producer({"bootstrap.servers": node.bootstrap_servers})
    for _ in range(MOVED_RECORDS):
        producer.produce("m", b"m" * 900_000, partition=0)
        assert producer.flush(20) == 0
    source = node.directory_of(Partition("m", 0))
    (target,) = (path for path in node.directories if path != source)
    host, _, port = node.bootstrap_servers.partition(":")
    with BlockingChannel(host, int(port), "test") as channel:
        answer = channel.request(alter(target, topic="m"))
    assert answer.results[0].partitions[0].error_code is ErrorCode.none
    wait_for(
        lambda: any(path.stat().st_size for path in target.glob("m-0.*-future/*.log")), "something copied"
    )
    return source, target


def copy_some(source: Path, target: Path) -> None:
    """Go on with what Apache Kafka has begun, as far as one read brings it."""
    (directory,) = target.glob("m-0.*-future")
    log, copy = (
        Log.open(path, LogConfig(), stop=PreviousStop.CLEAN, now_ms=START_MS)
        for path in (source / "m-0", directory)
    )
    assert copy.is_future
    assert 0 < copy.log_end_offset < MOVED_RECORDS - 1
    found = log.read(copy.log_end_offset, max_bytes=1 << 20, up_to_offset=MOVED_RECORDS)
    assert found.region is not None
    copy.append_as_follower(found.region.read(), START_MS)
    assert copy.log_end_offset == found.next_offset < MOVED_RECORDS
    log.close()
    copy.close()


def end_move(node: KafkaNode, source: Path, target: Path) -> None:
    """Let Apache Kafka go on with it; every record is there when it is over."""
    throttle(AdminClient({"bootstrap.servers": node.bootstrap_servers}), AlterConfigOpType.DELETE, None)
    wait_for(
        lambda: (target / "m-0").exists() and not (source / "m-0").exists(),
        "the end of the move",
        timeout_s=40,
    )
    messages = consume(node.bootstrap_servers, [TopicPartition("m", 0, OFFSET_BEGINNING)], MOVED_RECORDS)
    assert [message.offset() for message in messages] == list(range(MOVED_RECORDS))


@pytest.mark.long
@pytest.mark.timeout(240)
def test_kafka_and_this_clean_and_copy_the_same_logs_in_turn(
    tmp_path: Path, kafka_program: KafkaProgram
) -> None:
    """A directory can be moved from one to the other, at any time and back."""
    node = KafkaNode(tmp_path, kafka_program)
    partition = Partition("t", 0)
    with node.running():
        topic = NewTopic(
            "t",
            1,
            1,
            config={"cleanup.policy": "compact", "segment.ms": "10", "min.cleanable.dirty.ratio": "0.01"},
        )
        admin = AdminClient({"bootstrap.servers": node.bootstrap_servers})
        admin.create_topics([topic])["t"].result(20)
        wait_for(lambda: any((path / "t-0").exists() for path in node.directories), "the topic's log")
        checkpoint = node.directory_of(partition) / CHECKPOINT
        node.produce(8, "zstd")
        wait_for(
            lambda: cleaned_by_kafka(checkpoint) > 40,
            "Apache Kafka to clean",
            timeout_s=40,
        )
        node.produce(4, "none")
        table = node.table()
        source, target = begin_move(node, admin)
    directory = node.directory_of(partition) / "t-0"
    assert (directory.parent / CLEAN_SHUTDOWN_MARKER).exists()

    cleaned_offset = read_offsets(checkpoint)[partition]
    log = Log.open(directory, CONFIG, cleaned_offset=cleaned_offset, stop=PreviousStop.CLEAN, now_ms=START_MS)
    assert log.missing is None
    assert state_of(records_from(log, 0)) == table
    before = len(records_from(log, 0))
    log.roll(START_MS)
    clean_round(log, START_MS)
    assert len(records_from(log, 0)) < before
    log.close()
    write_offsets(checkpoint, {partition: log.cleaned_offset or 0})
    copy_some(source, target)

    with node.running():
        end_move(node, source, target)
        assert node.table() == table
        node.produce(3, "lz4")
        assert len(node.table()) == 8
