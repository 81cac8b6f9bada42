"""Kafka's own DumpLogSegments reads every file a log leaves, and finds nothing wrong with it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.java_libraries import kafka_class_path, maven_at_hand
from sparklog.storage.log import Log
from sparklog.storage.log_config import LogConfig
from tests.unit.storage.batches import START_MS, headers_of, make_batch, make_marker

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
COMPLAINTS = (
    "Mismatches",
    "Found timestamp mismatch",
    "out of order timestamp",
    "Exception",
)


@pytest.fixture(scope="module")
def class_path() -> str:
    """Kafka's jars, where Maven can get them."""
    if not (maven_at_hand() and shutil.which("java")):
        pytest.skip("needs mvn and java on the path")
    return kafka_class_path()


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
        log.append_as_leader(batch, headers_of(batch), i // 40, START_MS)
    log.truncate_to(300)
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
        + make_marker(base_offset=end + 2, producer_id=1, producer_epoch=0, commit=False, leader_epoch=3)
    )
    log.close(clean=not crash)
    if crash:
        Log.open(directory, CONFIG, now_ms=START_MS).close()


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "recovered"])
def test_dump_log_segments_accepts_every_file(tmp_path: Path, class_path: str, crash: bool) -> None:
    """Operators inspect and repair with Kafka's tools; they must work on these directories."""
    write_log(tmp_path / "t-0", crash=crash)
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = sorted(str(path) for path in (tmp_path / "t-0").iterdir() if path.suffix in suffixes)
    assert {Path(file).suffix for file in files} == set(suffixes)
    for options in (["--deep-iteration"], ["--index-sanity-check"], ["--verify-index-only"]):
        finished = subprocess.run(
            [
                "java",
                "-cp",
                class_path,
                "org.apache.kafka.tools.DumpLogSegments",
                *options,
                "--files",
                ",".join(files),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        output = finished.stdout + finished.stderr
        assert finished.returncode == 0, output[-2000:]
        assert not [complaint for complaint in COMPLAINTS if complaint in output], output[-2000:]
        # It takes the first offset of every segment but offset 0's for a gap, on Kafka's own files too.
        assert set(re.findall(r"(\S+) is followed by", output)) <= {"-1"}
        assert all(f"Dumping {file}" in output for file in files)
        if options == ["--index-sanity-check"]:
            assert output.count("passed sanity check.") + output.count("is empty.") == sum(
                "index" in Path(file).suffix and "txn" not in file for file in files
            )
