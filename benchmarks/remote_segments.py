"""The cost of remote segments: `python -m benchmarks.remote_segments [--scale N]`.

One core writes a log's records as a segment, reads a row group of it, and makes batches of the row group
again, as a broker does for a fetch. Rates are by processor time, since other processes may use the machine.
Of three rounds the best counts. Half of a value repeats from record to record, half is noise.
"""

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from sparklog.node.remote_log.machine.manifest import EpochStart
from sparklog.node.remote_log.segments.log_rows import log_rows
from sparklog.node.remote_log.segments.row_group_batches import row_group_batches
from sparklog.node.remote_log.segments.row_group_rows import row_group_rows
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from sparklog.node.remote_log.segments.segment_writer import WrittenSegment, write_segment
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.records.encode import encode_batches

T = TypeVar("T")

ROUNDS: Final = 3
LOG_BYTES: Final = 64 * 1024 * 1024
"""Of values, for a scale of 1."""
VALUE_BYTES: Final = (100, 1_000)
BATCH_BYTES: Final = 64 * 1024
START_MS: Final = 1_700_000_000_000


class Figures(NamedTuple):
    value_bytes: int
    written_per_s: float
    """Rows a second of a core, from the log's batches to the file."""
    parquet_per_s: float
    """Of these the rows that are columns already."""
    read_per_s: float
    """Rows a second of a core, from a row group's bytes to columns."""
    row_group_ms: float
    """Of a core, from a row group's bytes to batches."""
    ratio: float
    """Bytes of records in batches to one of the object."""


def columns(count: int, value_bytes: int, seed: int) -> tuple[pa.Array, pa.Array]:
    """Return keys of ten bytes and values, of which half can be compressed."""
    noise = np.random.default_rng(seed)
    letters = np.frombuffer(b"the same words in every record " * value_bytes, dtype=np.uint8)[:value_bytes]
    values = np.tile(letters, (count, 1))
    values[:, value_bytes // 2 :] = noise.integers(
        0, 256, (count, value_bytes - value_bytes // 2), dtype=np.uint8
    )
    keys = [b"key-%06d" % number for number in noise.integers(0, 100_000, count)]
    return pa.array(keys, pa.binary()), pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(value_bytes), count, [None, pa.py_buffer(values.tobytes())]
    ).cast(pa.binary())


def filled_log(directory: Path, value_bytes: int, size_bytes: int) -> Log:
    """Return a log of records as producers send them, compressed with lz4."""
    log = Log.open(directory / "t-0", LogConfig(), now_ms=START_MS)
    rows_at_once = 64 * 1024 * 1024 // value_bytes
    left = size_bytes // value_bytes
    while left:
        count = min(left, rows_at_once)
        key, value = columns(count, value_bytes, seed=left)
        for batch in encode_batches(
            key=key,
            value=value,
            default_timestamp_ms=START_MS,
            batch_size_bytes=BATCH_BYTES,
            codec=Codec.LZ4,
        ):
            log.append_as_leader(batch.data, read_header(batch.data), 0, START_MS)
        left -= count
    return log


def best(work: Callable[[], T]) -> tuple[float, T]:
    """Return the least processor time of some rounds, in seconds, and a result."""
    spent = []
    for _ in range(ROUNDS):
        before = time.process_time()
        result = work()
        spent.append(time.process_time() - before)
    return min(spent), result


def measure(directory: Path, value_bytes: int, size_bytes: int) -> Figures:
    """Write and read a segment of records with values of this size."""
    log = filled_log(directory, value_bytes, size_bytes)
    path = directory / "segment"

    def write(rows: Callable[[], object]) -> WrittenSegment:
        path.unlink(missing_ok=True)
        return write_segment(rows(), path, topic="t", topic_id=UUID(int=1), partition=0)  # type: ignore[arg-type]

    write_s, written = best(lambda: write(lambda: log_rows(log, 0, log.log_end_offset)))
    decoded = list(log_rows(log, 0, log.log_end_offset))
    parquet_s, _ = best(lambda: write(lambda: decoded))
    footer = SegmentFooter.parse(path.read_bytes(), path.name)
    group = footer.row_groups[0]
    data = path.read_bytes()[group.start : group.end]
    read_s, _ = best(lambda: list(row_group_rows(data, footer, 0, start_offset=0, end_offset=2**62)))
    batches_s, _ = best(
        lambda: deque(
            row_group_batches(
                data, footer, 0, start_offset=0, end_offset=2**62, leader_epochs=[EpochStart(0, 0)]
            ),
            maxlen=0,
        )
    )
    log.close()
    return Figures(
        value_bytes,
        written.record_count / write_s,
        written.record_count / parquet_s,
        group.record_count / read_s,
        batches_s * 1000,
        written.raw_bytes / written.size_bytes,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1, help="how many times 64 MiB of values")
    scale = parser.parse_args().scale
    print("value bytes     written/s  of columns/s        read/s  row group to batches  ratio")
    for value_bytes in VALUE_BYTES:
        with tempfile.TemporaryDirectory() as directory:
            found = measure(Path(directory), value_bytes, int(LOG_BYTES * scale))
        rates = "  ".join(
            f"{rate / 1e6:10.2f} M" for rate in (found.written_per_s, found.parquet_per_s, found.read_per_s)
        )
        print(f"{found.value_bytes:11,}  {rates}  {found.row_group_ms:17.1f} ms  {found.ratio:5.2f}")


if __name__ == "__main__":
    main()
