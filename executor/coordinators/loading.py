"""Loads a partition of an internal topic into its coordinator while the broker serves requests.

A thread reads some megabytes of the log at a time and does nothing else, because any other work would take
the interpreter from the loop. The loop checks the batches and replays them in slices, since the machine
belongs to the loop. A slice is measured in work, so that no request waits for a million records. Between two
slices the loads pause as long as their kind says: otherwise the loop is never idle and each request waits for
a slice at each of its turns. After a failover many partitions are loaded. They take turns, so that a long
one, or those of a hanging disk, do not delay a short one. (Kafka loads one after the other.)

The load reads up to the log's end, not to the high watermark: records between the two are not acknowledged
but may be committed yet, and the coordinator's replies wait for that. The end does not move meanwhile: only
this leader appends, and only through its coordinator.

A log without records gets its files, and its topic id on the disk, before its coordinator serves: the append
of the first record, which belongs to the loop, would wait for that.

Source: Kafka's CoordinatorLoaderImpl, TransactionStateManager.loadTransactionMetadata.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, NamedTuple, TypeVar

from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord, ProducerStamp
from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorPartition
from sparklog.executor.coordinators.records.framing import (
    RecordTypes,
    UnknownRecordTypeError,
    UnknownRecordVersionError,
)
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.producers.transaction_markers import read_marker
from sparklog.protocol.records.batch import BatchHeader, check_crc, iterate_headers
from sparklog.protocol.records.key_values import read_key_runs
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

SLICE_WORK: Final = 256
"""Work of one turn of the loop, in units of about a microsecond."""
BATCH_WORK: Final = 4
RUN_WORK: Final = 4
RECORDS_OF_WORK: Final = 2
"""Number of records per unit of work, in a run that is applied without decoding."""
DECODED_WORK: Final = 16
"""Work of a record that is decoded first."""

BUFFERS: Final = 4
"""Number of partitions whose data is in memory, or being read, at a time."""


class LoadLimits:
    def __init__(self) -> None:
        self.buffers: Final = asyncio.Semaphore(BUFFERS)
        """Held until the data of one read is replayed."""
        self.reads: Final = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """By log directory.

        The partitions of a hanging disk wait for each other, with one buffer and one thread, and leave the
        rest to those of other disks.
        """
        self.slices: Final = asyncio.Lock()
        """Held for a slice and the pause after it: a turn of the loop has room for one."""


class Loading(NamedTuple):
    log: Log
    types: RecordTypes
    skips_unknown_versions: bool
    """Whether values of unknown versions are passed over; otherwise they fail the load."""
    buffer_bytes: int
    rest_s: float
    executor: Executor


async def load_partition(loading: Loading, partition: CoordinatorPartition, limits: LoadLimits) -> int:
    """Replay the whole log and return the number of records. Cancelled, it leaves the machine half loaded.

    Raises:
        KafkaError: the log cannot be read, or put on the disk, or holds what is no coordinator's record.
        Exception: what the machine raises.
    """
    log = loading.log
    if log.identity_unsynced:
        turn = limits.reads[log.parent]
        await turn.acquire()
        await _run_in_turn(loading, turn, log.sync_identity)
    replayed = _Replayed(log.log_start_offset)
    while replayed.offset < log.log_end_offset:
        async with AsyncExitStack() as part:
            data = await _read(loading, replayed.offset, limits, part)
            if not data:
                break
            slices = _replay_slices(loading, partition, data, replayed)
            is_over = False
            while not is_over:
                async with limits.slices:
                    is_over = next(slices, True)
                    await asyncio.sleep(loading.rest_s)
    return replayed.count


async def _read(loading: Loading, offset: Offset, limits: LoadLimits, part: AsyncExitStack) -> bytes:
    """Read whole batches in the turn of their directory; hold a buffer for them until the `part` is done."""
    log, turn = loading.log, limits.reads[loading.log.parent]
    await turn.acquire()
    try:
        await part.enter_async_context(limits.buffers)
    except BaseException:
        turn.release()
        raise
    return await _run_in_turn(loading, turn, partial(read_batches, loading, offset, log.log_end_offset))


async def _run_in_turn(loading: Loading, turn: asyncio.Lock, work: Callable[[], _Result]) -> _Result:
    """Do blocking work in a thread, in a turn that begins with the call.

    Cancellation does not end the thread, which a hanging disk may keep: the turn is over when the thread
    ends.
    """
    running = asyncio.get_running_loop().run_in_executor(loading.executor, work)
    running.add_done_callback(lambda _: turn.release())
    return await asyncio.shield(running)


class _Replayed:
    """Progress of a load: the offset after the last replayed batch, and the number of records."""

    def __init__(self, offset: Offset) -> None:
        self.offset = offset
        self.count = 0


def _replay_slices(
    loading: Loading, partition: CoordinatorPartition, data: bytes, replayed: _Replayed
) -> Iterator[bool]:
    work = 0
    for position, header in iterate_headers(data):
        for work_done in replay_batch(loading, partition, header, data, position):
            work += work_done
            if work >= SLICE_WORK:
                work = 0
                yield False
        replayed.offset = header.next_offset
        replayed.count += header.record_count


def read_batches(loading: Loading, offset: Offset, end_offset: Offset) -> bytes:
    result = loading.log.read(offset, max_bytes=loading.buffer_bytes, up_to_offset=end_offset)
    return b"" if result.region is None else bytes(result.region.read())


def replay_batch(
    loading: Loading, partition: CoordinatorPartition, header: BatchHeader, data: bytes, position: int
) -> Iterator[int]:
    """Replay the batch at `position`; yield the work done at intervals.

    Raises:
        CorruptBatchError: its CRC does not match.
    """
    check_crc(data, position, header)
    producer = None
    if header.has_producer_id:
        producer = ProducerStamp(header.producer_id, header.producer_epoch)
    if header.is_control:
        batch = data[position : position + header.size_bytes]
        marker = read_marker(header, batch) if header.record_count else None
        if marker is not None and producer is not None:
            partition.end_transaction(producer, not marker.aborted)
        yield BATCH_WORK + DECODED_WORK
        return
    replay_raw = None if producer is not None else partition.replay_raw
    work = BATCH_WORK
    for run in read_key_runs(data, header, position):
        if replay_raw is not None and replay_raw(run):
            work += RUN_WORK + len(run.ends) // RECORDS_OF_WORK
            if work >= SLICE_WORK:
                yield work
                work = 0
            continue
        for key, value in run.keys_and_values():
            _replay_decoded(loading, partition, key, value, producer)
            work += DECODED_WORK
            if work >= SLICE_WORK:
                yield work
                work = 0
    yield work


def _replay_decoded(
    loading: Loading,
    partition: CoordinatorPartition,
    key: bytes | None,
    value: bytes | None,
    producer: ProducerStamp | None,
) -> None:
    try:
        decoded = loading.types.decode(key, value)
    except UnknownRecordTypeError as error:
        if value is not None:  # a tombstone of what was skipped says nothing
            logger.warning("%s: skipped a record: %s", loading.log.topic_partition, error)
        return
    except UnknownRecordVersionError as error:
        if not loading.skips_unknown_versions:
            raise
        logger.warning("%s: skipped a record: %s", loading.log.topic_partition, error)
        return
    partition.replay(CoordinatorRecord(*decoded), producer)
