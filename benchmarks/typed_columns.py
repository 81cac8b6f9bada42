"""The cost of typed columns: `python -m benchmarks.typed_columns [--scale N]`.

One core writes a log's records, JSON values, as a segment: without typed columns, with one and with four, and
with four where one value of a hundred does not parse, and where none does. Rates are by processor time; of
three rounds the best counts.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

import pyarrow as pa

from benchmarks.remote_segments import BATCH_BYTES, START_MS, best
from sparklog.node.remote_log.segments.log_rows import log_rows
from sparklog.node.remote_log.segments.segment_writer import WrittenSegment, write_segment
from sparklog.node.remote_log.segments.typed_columns import TypedColumns
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.records.encode import encode_batches

FOUR: Final = "id BIGINT, name STRING, price DOUBLE, paid BOOLEAN"
CASES: Final = {
    "raw values alone": ("", 0.0),
    "one column": ("id BIGINT", 0.0),
    "four columns": (FOUR, 0.0),
    "four, 1 % do not parse": (FOUR, 0.01),
    "four, none parses": (FOUR, 1.0),
}
LOG_BYTES: Final = 24 * 1024 * 1024
"""Of values, for a scale of 1."""
VALUE_BYTES: Final = (100, 1_000)


def values(count: int, value_bytes: int, unparsed: float) -> Iterator[bytes]:
    """Yield JSON objects of about this size; those that do not parse have text for a number."""
    chance = Random(count)
    for _ in range(count):
        number = chance.randrange(10**9)
        fields: dict[str, object] = {
            "id": str(number) if chance.random() < unparsed else number,
            "name": f"customer {number % 1000}",
            "price": number / 1000,
            "paid": number % 2 == 0,
        }
        short = len(json.dumps({**fields, "text": ""}))
        fields["text"] = (f"{number:08x}" * (value_bytes // 8))[: max(0, value_bytes - short)]
        yield json.dumps(fields).encode()


def filled_log(directory: Path, value: pa.Array) -> Log:
    log = Log.open(directory / "t-0", LogConfig(), now_ms=START_MS)
    for batch in encode_batches(
        value=value, default_timestamp_ms=START_MS, batch_size_bytes=BATCH_BYTES, codec=Codec.LZ4
    ):
        log.append_as_leader(batch.data, read_header(batch.data), 0, START_MS)
    return log


def written_per_s(directory: Path, value_bytes: int, size_bytes: int, case: str) -> float:
    """Return how many records a core copies in a second."""
    schema, unparsed = CASES[case]
    log = filled_log(
        directory, pa.array(values(size_bytes // value_bytes, value_bytes, unparsed), pa.binary())
    )
    path = directory / "segment"
    typed = TypedColumns.of(schema)

    def write() -> WrittenSegment:
        path.unlink(missing_ok=True)
        rows = log_rows(log, 0, log.log_end_offset)
        return write_segment(rows, path, topic="t", topic_id=UUID(int=1), partition=0, typed=typed)

    seconds, written = best(write)
    log.close()
    return written.record_count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1, help="how many times 24 MiB of values")
    scale = parser.parse_args().scale
    print(f"{'million records/s of a core':28}" + "".join(f"{size:>10,} B" for size in VALUE_BYTES))
    for case in CASES:
        rates = []
        for value_bytes in VALUE_BYTES:
            with tempfile.TemporaryDirectory() as directory:
                rates.append(written_per_s(Path(directory), value_bytes, int(LOG_BYTES * scale), case))
        print(f"{case:28}" + "".join(f"{rate / 1e6:12.2f}" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
