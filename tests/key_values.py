"""Keys and values of a batch's records, one by one."""

from collections.abc import Iterator

from sparklog.protocol.records.batch import BatchHeader
from sparklog.protocol.records.key_values import read_key_runs


def read_keys_and_values(
    buffer: bytes | memoryview, header: BatchHeader, position: int = 0
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield key and value of each record of the batch at `position`; raise what `read_key_runs` raises."""
    for run in read_key_runs(buffer, header, position):
        yield from run.keys_and_values()
