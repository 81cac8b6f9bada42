"""Clean a compacted log here and in Apache Kafka: `python -m benchmarks.cleaning [--scale N] [case ...]`.

Both get the same files: records of one size with keys drawn evenly, none of them clean yet. Kafka has one
cleaner thread and finds the log dirty once it serves; ours is the process that a broker starts. Rates are
bytes of log by the clock, and by the processor time that was used, which says more on a machine that others
use too.
"""

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.clusters import free_ports
from benchmarks.java_libraries import kafka_command, run_kafka_program
from executor.logs.cleaner_processes import CleanerProcess
from sparklog.records.batch import read_header
from sparklog.records.codecs import Codec
from sparklog.records.encode import encode_batches
from sparklog.storage.checkpoints import CLEANER_OFFSET_CHECKPOINT
from sparklog.storage.files import PARTITION_METADATA
from sparklog.storage.log import Log
from sparklog.storage.log_cleaning import CleaningLimits
from sparklog.storage.log_config import LogConfig

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

    records: int
    value_bytes: int
    keys: int
    codec: Codec


class Result(NamedTuple):
    """What a cleaning took."""

    seconds: float
    processor_seconds: float
    resident_mib: float


CASES: Final = {
    "100B": Case(10_000_000, 90, 1_000_000, Codec.NONE),
    "100B-zstd": Case(10_000_000, 90, 1_000_000, Codec.ZSTD),
    "1KB": Case(1_000_000, 1014, 100_000, Codec.NONE),
    "1KB-zstd": Case(1_000_000, 1014, 100_000, Codec.ZSTD),
}


def write_log(directory: Path, case: Case) -> Log:
    """Write a log whose active segment is empty."""
    random = np.random.default_rng(1)
    log = Log.open(directory, LogConfig(segment_bytes=SEGMENT_BYTES), now_ms=START_MS)
    half = case.value_bytes // 2
    values = [bytes(random.integers(32, 127, half, dtype=np.uint8)) * 2 for _ in range(1000)]
    for first in range(0, case.records, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, case.records - first)
        keys = [b"%010d" % key for key in random.integers(0, case.keys, count)]
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
    return log


def clean_here(log: Log) -> Result:
    """Have a process of ours clean the log, and throw away what comes of it."""
    request, _ = log.cleaning.request(0, log.log_end_offset, LIMITS, START_MS)
    cleaner = CleanerProcess()
    started_s = time.monotonic()
    try:
        outcome = cleaner.clean(request)
        seconds = time.monotonic() - started_s
        assert cleaner.process_id is not None
        process = psutil.Process(cleaner.process_id)
        times = process.cpu_times()
        peak = _peak_resident_mib(process.pid)
    finally:
        cleaner.end()
    for path in log.directory.glob("*.cleaned"):
        path.unlink()
    print(f"  ours: {outcome.keys} keys, {outcome.bytes_written} bytes left")
    return Result(seconds, times.user + times.system, peak)


def clean_in_kafka(log: Log, work: Path) -> Result:
    """Have Apache Kafka clean a copy of the log."""
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
    resource = ConfigResource(ResourceType.TOPIC, "t")
    with _kafka(properties, admin):
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "1.0",
            "segment.bytes": str(SEGMENT_BYTES),
        }
        admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(30)
    for path in (logs / "t-0").iterdir():
        if path.name != PARTITION_METADATA:
            path.unlink()
    for path in log.directory.iterdir():
        if path.suffix in (".log", ".index", ".timeindex"):
            shutil.copy(path, logs / "t-0")
    with _kafka(properties, admin) as process:
        before = process.cpu_times()
        started_s = time.monotonic()
        resource.add_incremental_config(
            ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
        )
        admin.incremental_alter_configs([resource])[resource].result(30)
        while not _is_cleaned(logs / CLEANER_OFFSET_CHECKPOINT):
            time.sleep(0.1)
        seconds = time.monotonic() - started_s
        after = process.cpu_times()
        peak = _peak_resident_mib(process.pid)
    return Result(seconds, after.user + after.system - before.user - before.system, peak)


@contextmanager
def _kafka(properties: Path, admin: AdminClient) -> Iterator[psutil.Process]:
    command = kafka_command("kafka.Kafka", str(properties), java_options=("-Xmx1g", "-Xms1g"))
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


def _is_cleaned(checkpoint: Path) -> bool:
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return any(line.startswith("t 0 ") and not line.endswith(" 0") for line in lines)


def _peak_resident_mib(process_id: int) -> float:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError("Linux says it of every process")


def main() -> None:
    """Print a line a case and side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(CASES))
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    for name in arguments.cases or CASES:
        case = CASES[name]
        case = case._replace(records=int(case.records * arguments.scale))
        with tempfile.TemporaryDirectory(prefix="benchmark-cleaning-") as directory:
            log = write_log(Path(directory) / "ours" / "t-0", case)
            size_mib = log.size_bytes / 2**20
            print(
                f"{name}: {case.records} records, {case.keys} keys, {size_mib:.0f} MiB, "
                f"load {os.getloadavg()[0]:.1f}"
            )
            work = Path(directory) / "kafka"
            work.mkdir()
            for side, result in (("ours", clean_here(log)), ("Apache Kafka", clean_in_kafka(log, work))):
                print(
                    f"  {side}: {size_mib / result.seconds:.1f} MiB/s, "
                    f"{size_mib / result.processor_seconds:.1f} MiB a processor second, "
                    f"{result.resident_mib:.0f} MiB resident",
                    flush=True,
                )
            log.close(clean=False)


if __name__ == "__main__":
    main()
