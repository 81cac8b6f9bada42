"""A compacted log cleaned here and in Apache Kafka; cases of `python -m benchmarks`.

Both get the same files: records of one size with keys drawn evenly, none of them clean yet. Kafka has one
cleaner thread, and a topic for each round, which becomes dirty by a change of its configuration; ours is the
process that a broker starts, from its start until the cleaned files are on the disk: their renaming, which is
the broker's, is in Kafka's time only. Rates are bytes of log by the clock, and by the processor time
that was used, which says more on a machine that others use too. After every round both must have left as many
records as there are keys, each with another key.
"""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.case import BASELINE, OURS, Figure
from benchmarks.clusters import KAFKA_JVM_OPTIONS, free_ports
from benchmarks.java_libraries import kafka_command, run_kafka_program
from benchmarks.rounds import Sides
from sparklog.executor.logs.cleaner_processes import CleanerProcess
from sparklog.node.storage.checkpoints import CLEANER_OFFSET_CHECKPOINT
from sparklog.node.storage.files import CLEANED_SUFFIX, LOG_SUFFIX, PARTITION_METADATA
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log.log_cleaning import CleaningLimits, LogCleaning
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.records.decode import decode_batches
from sparklog.protocol.records.encode import encode_batches

TOPIC: Final = "t"
MOST_ROUNDS: Final = 20
"""As many topics Kafka has; each is cleaned once."""
CLEANED_WITHIN_S: Final = 600.0
POLL_S: Final = 0.02
START_MS: Final = 1_700_000_000_000
SEGMENT_BYTES: Final = 128 * 1024 * 1024
BATCH_BYTES: Final = 65536
ROWS_AT_ONCE: Final = 100_000
LIMITS: Final = CleaningLimits(
    dedupe_buffer_bytes=134217728,
    load_factor=0.9,
    max_bytes_a_second=None,
    window_bytes=4194304,
    max_decompressed_bytes=67108864,
)


class Case(NamedTuple):
    """A log to be cleaned."""

    description: str
    records: int
    value_bytes: int
    keys: int
    codec: Codec


class Left(NamedTuple):
    """What there is of a log."""

    records: int
    keys: int
    """How many different ones these records have."""


class Result(NamedTuple):
    """What a cleaning took."""

    seconds: float
    processor_seconds: float
    resident_mib: float
    left: Left


CASES: Final = {
    "cleaning-100": Case("5 million records of 100 B", 5_000_000, 90, 500_000, Codec.NONE),
    "cleaning-100-zstd": Case("5 million records of 100 B zstd", 5_000_000, 90, 500_000, Codec.ZSTD),
    "cleaning-1000": Case("1 million records of 1 KB", 1_000_000, 1014, 100_000, Codec.NONE),
    "cleaning-1000-zstd": Case("1 million records of 1 KB zstd", 1_000_000, 1014, 100_000, Codec.ZSTD),
}


def write_log(directory: Path, case: Case) -> tuple[Log, int]:
    """Write a log whose active segment is empty; return it, and how many keys were drawn."""
    random = np.random.default_rng(1)
    log = Log.open(directory, LogConfig(segment_bytes=SEGMENT_BYTES), now_ms=START_MS)
    half = case.value_bytes // 2
    values = [bytes(random.integers(32, 127, half, dtype=np.uint8)) * 2 for _ in range(1000)]
    is_drawn = np.zeros(case.keys, dtype=bool)
    for first in range(0, case.records, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, case.records - first)
        numbers = random.integers(0, case.keys, count)
        is_drawn[numbers] = True
        keys = [b"%010d" % number for number in numbers]
        for batch in encode_batches(
            key=pa.array(keys, pa.binary()),
            value=pa.array([values[place] for place in random.integers(0, 1000, count)], pa.binary()),
            default_timestamp_ms=START_MS + first,
            batch_size_bytes=BATCH_BYTES,
            codec=case.codec,
        ):
            data = batch.data
            log.append_as_leader(data, read_header(data), 0, START_MS)
    log.roll(START_MS)
    log.flush()
    return log, int(is_drawn.sum())


def left_in(files: Iterable[Path]) -> Left:
    """Return what there is in the files of a log."""
    keys = [
        rows.column("key")
        for file in sorted(files)
        for rows in decode_batches(file.read_bytes(), columns=["key"], topic=TOPIC, partition=0)
    ]
    together = pa.chunked_array(keys, pa.binary())
    return Left(len(together), pc.count_distinct(together).as_py())


def clean_here(log: Log) -> Result:
    """Have a process of ours clean the log, and throw away what comes of it."""
    request, _ = LogCleaning(log).request(0, log.log_end_offset, LIMITS, START_MS)
    cleaner = CleanerProcess()
    started_s = time.monotonic()
    try:
        cleaner.clean(request)
        seconds = time.monotonic() - started_s
        assert cleaner.process_id is not None
        process = psutil.Process(cleaner.process_id)
        times = process.cpu_times()
        peak = _peak_resident_mib(process.pid)
    finally:
        cleaner.end()
    left = left_in(log.directory.glob(f"*{LOG_SUFFIX}{CLEANED_SUFFIX}"))
    for path in log.directory.glob(f"*{CLEANED_SUFFIX}"):
        path.unlink()
    return Result(seconds, times.user + times.system, peak, left)


@contextmanager
def kafka_with(log: Log, work: Path, rounds: int) -> Iterator[Callable[[], Result]]:
    """Start Apache Kafka with the log in a topic for each round; gives what has it clean the next one."""
    logs = work / "logs"
    port, controller_port = free_ports(2)
    properties = work / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller_port}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n"
        "controller.listener.names=CONTROLLER\n"
        "log.cleaner.threads=1\n"
        "log.cleaner.backoff.ms=100\n"
        f"log.dirs={logs}\n"
    )
    run_kafka_program(
        "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(properties)
    )
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    topics = [f"{TOPIC}-{number}" for number in range(rounds)]
    with _kafka(properties, admin):
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "1.0",
            "segment.bytes": str(SEGMENT_BYTES),
        }
        for created in admin.create_topics(
            [NewTopic(topic, 1, 1, config=config) for topic in topics]
        ).values():
            created.result(30)
    for topic in topics:
        _put_log(log, logs / f"{topic}-0")
    with _kafka(properties, admin) as process:
        coming = iter(topics)
        yield lambda: _clean_in_kafka(next(coming), log.log_end_offset, logs, admin, process)


def _put_log(log: Log, directory: Path) -> None:
    """Have a directory of Kafka's consist of the log's files; it writes to none but the last one."""
    for path in directory.iterdir():
        if path.name != PARTITION_METADATA:
            path.unlink()
    *sealed, _ = sorted(log.directory.glob(f"*{LOG_SUFFIX}"))
    for path in log.directory.iterdir():
        if path in sealed:
            # No copy: both sides are to find the same pages in the cache, none yet to be written.
            (directory / path.name).hardlink_to(path)
        elif path.suffix in (LOG_SUFFIX, ".index", ".timeindex"):
            shutil.copy(path, directory)


def _clean_in_kafka(
    topic: str, end_offset: int, logs: Path, admin: AdminClient, process: psutil.Process
) -> Result:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    )
    before = process.cpu_times()
    started_s = time.monotonic()
    admin.incremental_alter_configs([resource])[resource].result(30)
    while (cleaned := cleaned_up_to(logs / CLEANER_OFFSET_CHECKPOINT, topic)) < end_offset:
        if time.monotonic() - started_s > CLEANED_WITHIN_S:
            raise RuntimeError(f"Apache Kafka has cleaned {topic} up to {cleaned} only, of {end_offset}")
        time.sleep(POLL_S)
    seconds = time.monotonic() - started_s
    after = process.cpu_times()
    processor_seconds = after.user + after.system - before.user - before.system
    left = left_in((logs / f"{topic}-0").glob(f"*{LOG_SUFFIX}"))
    return Result(seconds, processor_seconds, _peak_resident_mib(process.pid), left)


@contextmanager
def _kafka(properties: Path, admin: AdminClient) -> Iterator[psutil.Process]:
    command = kafka_command("kafka.Kafka", str(properties), java_options=KAFKA_JVM_OPTIONS)
    with (
        properties.with_suffix(".log").open("ab") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            for _ in range(120):
                try:
                    admin.list_topics(timeout=1)
                    break
                except Exception:
                    time.sleep(0.5)
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def cleaned_up_to(checkpoint: Path, topic: str) -> int:
    """Return up to where Kafka has cleaned the topic's partition, exclusive, by its checkpoint."""
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    prefix = f"{topic} 0 "
    return next((int(line.removeprefix(prefix)) for line in lines if line.startswith(prefix)), 0)


def _peak_resident_mib(process_id: int) -> float:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError("Linux says it of every process")


@contextmanager
def sides(name: str, *, compare: bool) -> Iterator[Sides]:
    """Write the log of a case; gives what cleans it, here and in Kafka."""
    with tempfile.TemporaryDirectory(prefix="benchmark-cleaning-") as directory, ExitStack() as stack:
        log, keys = write_log(Path(directory) / "ours" / f"{TOPIC}-0", CASES[name])
        stack.callback(log.close, clean=False)
        expected = Left(records=keys, keys=keys)
        found = {OURS: round_of(name, OURS, partial(clean_here, log), log.size_bytes, expected)}
        if compare:
            work = Path(directory) / "kafka"
            work.mkdir()
            clean_in_kafka = stack.enter_context(kafka_with(log, work, MOST_ROUNDS))
            found[BASELINE] = round_of(name, BASELINE, clean_in_kafka, log.size_bytes, expected)
        yield found


def round_of(
    name: str, side: str, clean: Callable[[], Result], size_bytes: int, expected: Left
) -> Callable[[], list[Figure]]:
    """Return the round of a side, which raises RuntimeError if it leaves another log than expected."""

    def run() -> list[Figure]:
        result = clean()
        if result.left != expected:
            raise RuntimeError(f"{side} has left {result.left}, not {expected}")
        size_mib = size_bytes / 2**20
        case = CASES[name].description
        return [
            Figure(f"{case}, log", "MiB/s", size_mib / result.seconds),
            Figure(f"{case}, log by processor time", "MiB/s", size_mib / result.processor_seconds),
            Figure(f"{case}, memory of the process, at most", "MiB", result.resident_mib),
        ]

    return run
