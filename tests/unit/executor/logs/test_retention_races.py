"""A look-up by time that retention overtakes: real handlers and files, in the order that does harm."""

import datetime
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kio.schema.list_offsets.v10.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.logs.test_log_upkeep import Clock
from tests.unit.executor.requests import produce, rows

START_MS = 1_700_000_000_000
TIMEOUT_S = 20


def list_offsets(timestamp_ms: int) -> ListOffsetsRequest:
    """Ask for a time in partition 0 of topic t."""
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp_ms)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(ListOffsetsTopic(name="t", partitions=(partition,)),),
        timeout=datetime.timedelta(seconds=30),
    )


class HeldReads:
    """Reads of one file beside the loop, which wait until they may go on."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.reached = threading.Event()
        self.go_on = threading.Event()

    @contextmanager
    def installed(self) -> Iterator["HeldReads"]:
        real = os.pread

        def pread(descriptor: int, length: int, position: int) -> bytes:
            if (
                threading.current_thread() is not threading.main_thread()
                and str(Path(f"/proc/self/fd/{descriptor}").readlink()) == self.path
            ):
                self.reached.set()
                assert self.go_on.wait(TIMEOUT_S)
            return real(descriptor, length, position)

        os.pread = pread
        try:
            yield self
        finally:
            os.pread = real
            self.go_on.set()


@with_brokers(config={"log.retention.check.interval.ms": "1"})
async def test_look_up_by_time_whose_segments_go_meanwhile_is_answered_and_the_directory_stays_online(
    brokers: Brokers,
) -> None:
    """An index that had been renamed was taken for a broken disk, and the broker ended."""
    topic_id = await brokers.create_topic("t", [(0,)], {"index.interval.bytes": "100", "retention.ms": "-1"})
    log = brokers.replica(0, topic_id).log
    channel = await brokers.connect(0)
    for number in range(9):
        records = build_batch([SimpleRecord(None, bytes(200), (), START_MS + number)])
        (row,) = rows(await channel.request(produce(topic_id, records)))
        assert row.error_code is ErrorCode.none
        if number % 3 == 2:
            # As if segment.bytes were small: Kafka allows no less than a mebibyte.
            log.roll(START_MS)
    log.flush()
    first, second = (segment.file.path for segment in log.segments.all[:2])
    log.advance_log_start_offset(7)
    clock = Clock(brokers)
    with HeldReads(first).installed() as held:
        # Nothing of the first segment is readable any more, and the look-up goes on to the second one.
        asked = channel.request(list_offsets(START_MS))
        await until(held.reached.is_set, "the look-up in the first segment")
        clock.tick(1000)
        await clock.until(lambda: not second.exists(), "both segments renamed")
        held.go_on.set()
        (row,) = rows(await asked)
    assert (row.error_code, row.offset, row.timestamp) == (ErrorCode.none, 7, START_MS + 7)
    assert brokers.brokers[0].directory.failure is None
    assert not brokers.replica(0, topic_id).offline
