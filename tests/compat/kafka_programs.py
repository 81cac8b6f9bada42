"""Kafka's own Java programs in tests: how to run them, what DumpLogSegments says of files of ours."""

import base64
import json
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

KafkaProgram: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
"""What the fixture `kafka_program` is: runs a main class of Kafka's, see `KafkaJvm.run`."""

DUMP_LOG_SEGMENTS: Final = "org.apache.kafka.tools.DumpLogSegments"
DUMPED_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
COMPLAINTS: Final = (
    "Mismatches",
    "Found timestamp mismatch",
    "out of order timestamp",
    "Exception",
    "isvalid: false",
)


def files_of_logs(directory: Path) -> list[Path]:
    """Return every file of the logs below `directory` that DumpLogSegments knows."""
    return sorted(path for path in directory.rglob("*-[0-9]*/*") if path.suffix in DUMPED_SUFFIXES)


def check_files(kafka_program: KafkaProgram, files: Sequence[Path], *, may_have_gaps: bool = False) -> None:
    """Fail if DumpLogSegments finds anything wrong: with records, with indexes, or between the two.

    A log that was compacted may have gaps between its offsets.
    """
    for option in ("--deep-iteration", "--index-sanity-check", "--verify-index-only"):
        output = kafka_program(DUMP_LOG_SEGMENTS, option, "--files", ",".join(map(str, files))).stdout
        assert not [complaint for complaint in COMPLAINTS if complaint in output], output[-2000:]
        # It takes the first offset of every segment but offset 0's for a gap, on Kafka's own files too.
        assert may_have_gaps or set(re.findall(r"(\S+) is followed by", output)) <= {"-1"}
        assert all(f"Dumping {file}\n" in output for file in files)
        if option == "--index-sanity-check":
            indexes = [file for file in files if file.suffix in (".index", ".timeindex")]
            assert output.count("passed sanity check.") + output.count("is empty.") == len(indexes)


def dump_metadata(kafka_program: KafkaProgram, segment: Path) -> list[tuple[str, int, Any]]:
    """Return type, version and content of each record of a metadata log's segment, as Kafka shows them."""
    dump = kafka_program(
        DUMP_LOG_SEGMENTS, "--cluster-metadata-decoder", "--skip-record-metadata", "--files", str(segment)
    )
    shown = [json.loads(line[line.index("{") :]) for line in dump.stdout.splitlines() if '"type"' in line]
    return [(record["type"], record["version"], record["data"]) for record in shown]


def as_kafka_shows_it(record: Any) -> tuple[str, int, Any]:
    """Return what `dump_metadata` should say of a metadata record."""
    words = re.findall(r"[A-Z][a-z]*", type(record).__name__)
    return "_".join(words).upper(), record.__version__, _as_json(record)


def _as_json(value: Any) -> Any:
    match value:
        case UUID():
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
        case tuple():
            return [_as_json(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
    shown = {}
    for item in fields(value):
        field_value = getattr(value, item.name)
        if "tag" in item.metadata and field_value == item.default:
            continue
        first, *rest = item.name.split("_")
        shown[first + "".join(word.capitalize() for word in rest)] = _as_json(field_value)
    return shown
