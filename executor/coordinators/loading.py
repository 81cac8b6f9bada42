"""Reading a partition of an internal topic into its coordinator, beside everything else that a broker does.

A thread reads some megabytes of the log at a time, and only waits for the disk: what it did besides it would
take the interpreter from the loop for. The loop checks them and has them replayed, a slice at a time, as the
machine is the loop's. A slice is counted in what is to be done, so that nobody waits for a million records.
Between two slices the loads rest, for as long as their kind says: else the loop is never idle, and whoever
comes waits for a slice, at each broker and each turn of its request. After a failover many partitions are
loaded: they take turns, so that a long one, or those of a disk that hangs, do not hold up what a short one
serves. (Kafka loads one after the other.)

Read up to the log's end, not to the high watermark: what lies between was acknowledged to nobody, but may be
committed yet, and the coordinator's answers wait for that. The end does not move meanwhile: only this leader
appends, and only through its coordinator.

Source: Kafka's CoordinatorLoaderImpl, TransactionStateManager.loadTransactionMetadata.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorPartition
from sparklog.executor.coordinators.machine.decision import CoordinatorRecord, ProducerStamp
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

SLICE_WORK: Final = 256
"""Done in one turn of the loop, in microseconds or so."""
BATCH_WORK: Final = 4
RUN_WORK: Final = 4
RECORDS_OF_WORK: Final = 2
"""So many records of a run that is applied as it lies in the log."""
DECODED_WORK: Final = 16
"""What a record takes that is made an entity first."""

BUFFERS: Final = 4
"""Of how many partitions something is in memory, or being read, at a time."""


class LoadTurns:
    """How the loads of one kind of coordinator share memory and loop: part by part, in turn."""

    def __init__(self) -> None:
        self.buffers: Final = asyncio.Semaphore(BUFFERS)
        """For as long as what was read at a time is not replayed."""
        self.reads: Final = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """By log directory: the partitions of a disk that hangs wait for each other, with one buffer and one
        thread, and leave the rest to those of the others."""
        self.slices: Final = asyncio.Lock()
        """For a slice and the rest after it: a turn of the loop has room for one."""


class Loading(NamedTuple):
    """What is loaded, and how."""

    log: Log
    types: RecordTypes
    skips_unknown_versions: bool
    """Whether values of unknown versions are passed over; else they keep the coordinator from serving."""
    buffer_bytes: int
    rest_s: float
    executor: Executor


async def load_partition(loading: Loading, partition: CoordinatorPartition, turns: LoadTurns) -> int:
    """Replay all of the log; return how many records there were. Cancelled, it leaves half of them.

    Raises:
        KafkaError: the log cannot be read, or holds what is no coordinator's record.
        Exception: what the machine raises.
    """
    log = loading.log
    replayed = _Replayed(log.log_start_offset)
    while replayed.offset < log.log_end_offset:
        async with AsyncExitStack() as part:
            data = await _read(loading, replayed.offset, turns, part)
            if not data:
                break
            slices = _replay_slices(loading, partition, data, replayed)
            is_over = False
            while not is_over:
                async with turns.slices:
                    is_over = next(slices, True)
                    await asyncio.sleep(loading.rest_s)
    return replayed.count


async def _read(loading: Loading, offset: Offset, turns: LoadTurns, part: AsyncExitStack) -> bytes:
    """Read whole batches, in the turn of their directory, and have room for them until the `part` is done.

    Who cancels that does not end its thread, which a disk that hangs may keep: the turn is over when it ends.
    """
    log, turn = loading.log, turns.reads[loading.log.parent]
    await turn.acquire()
    try:
        await part.enter_async_context(turns.buffers)
    except BaseException:
        turn.release()
        raise
    reading = asyncio.get_running_loop().run_in_executor(
        loading.executor, read_batches, loading, offset, log.log_end_offset
    )
    reading.add_done_callback(lambda _: turn.release())
    return await asyncio.shield(reading)


class _Replayed:
    """How far a load has come: the offset after what is replayed, and how many records that is."""

    def __init__(self, offset: Offset) -> None:
        self.offset = offset
        self.count = 0


def _replay_slices(
    loading: Loading, partition: CoordinatorPartition, data: bytes, replayed: _Replayed
) -> Iterator[bool]:
    """Replay whole batches; yield False after each slice but the last."""
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
    """Return whole batches from `offset` on: at least one, unless compaction has left none."""
    result = loading.log.read(offset, max_bytes=loading.buffer_bytes, up_to_offset=end_offset)
    return b"" if result.region is None else bytes(result.region.read())


def replay_batch(
    loading: Loading, partition: CoordinatorPartition, header: BatchHeader, data: bytes, position: int
) -> Iterator[int]:
    """Replay the batch at `position`, and yield how much work it was, now and then.

    Raises:
        CorruptBatchError: it is not what was appended.
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
        logger.warning("%s: a record is passed over: %s", loading.log.topic_partition, error)
        return
    except UnknownRecordVersionError as error:
        if not loading.skips_unknown_versions:
            raise
        logger.warning("%s: a record is passed over: %s", loading.log.topic_partition, error)
        return
    partition.replay(CoordinatorRecord(*decoded), producer)
