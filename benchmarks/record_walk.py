"""What it costs a leader to look at the records of a batch before it appends them: CPU of one thread.

    python -m benchmarks.record_walk

Prints microseconds for 64 KiB of records, at best, as others on the machine only make it slower.
"""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from sparklog.executor.records.examination import Demands, examine
from sparklog.executor.records.walk import RecordLimits
from sparklog.protocol.records.batch import read_header, validate_produced
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec

BATCH_BYTES: Final = 64 * 1024
ROUNDS: Final = 60
CALLS_A_ROUND: Final = 50
NOW_MS: Final = 1_700_000_000_000
DEMANDS: Final = Demands(256 * 1024, 1 << 20, RecordLimits(False, 0, 2 * NOW_MS))


def records_of(size_bytes: int, spread_bytes: int) -> list[SimpleRecord]:
    """Return records that take 64 KiB, three a millisecond; with a spread they have keys and sizes."""
    chance = random.Random(1)
    count = BATCH_BYTES // (size_bytes + 12)
    return [
        SimpleRecord(
            b"key-%d" % index if spread_bytes else None,
            chance.randbytes(size_bytes - chance.randrange(spread_bytes + 1)),
            (),
            NOW_MS + index // 3,
        )
        for index in range(count)
    ]


def microseconds(work: Callable[[], object]) -> float:
    """Return the least thread CPU that a call takes."""
    least = float("inf")
    for _ in range(ROUNDS):
        begun = time.thread_time()
        for _ in range(CALLS_A_ROUND):
            work()
        least = min(least, (time.thread_time() - begun) / CALLS_A_ROUND)
    return least * 1e6


def main() -> None:
    """Measure, and print a row for each kind of records."""
    print("records                      codec      header and CRC   and the records")
    for size_bytes, spread_bytes in ((1_000, 0), (100, 0), (1_000, 90), (100, 10)):
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
            batch = memoryview(build_batch(records_of(size_bytes, spread_bytes), codec=codec))
            validating = microseconds(partial(validate_produced, batch, max_message_bytes=1 << 20))
            examining = microseconds(partial(examine, batch, read_header(batch), DEMANDS))
            what = f"{size_bytes} B{', of several sizes' if spread_bytes else ''}"
            print(f"{what:28} {codec.name.lower():10} {validating:11.1f} us {examining:14.1f} us")


if __name__ == "__main__":
    main()
