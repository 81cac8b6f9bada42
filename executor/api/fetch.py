"""Fetch: serve records to consumers and followers, at once or when there are some.

A consumer reads below the high watermark (the last stable offset with read_committed), a follower to the
end of the log; its fetch offset tells the leader what it holds. Records leave as regions of the log's
files, without passing through Python. A request is answered when it finds `min_bytes`, an error or a
divergence, or after `max_wait_ms`; until then it waits as its reader's `waiting`. What has to come from
the disk first is read beside the loop: what leads to the records (index pages, batch headers) before they are
looked for again, and the records before the answer leaves. Only partitions that have changed since the last
answer are looked at and told. Versions 4 to 18; from 13 on topics are named by id.
"""

import asyncio
import datetime
import logging
from asyncio import Future
from collections.abc import Generator
from concurrent.futures import Executor
from typing import Any, Final

from executor.api.cold_reads import ColdLookUp, is_cold, look_up, warm
from executor.api.fetch_context import Reader
from executor.api.fetch_responses import FetchedPartition, fetch_response
from executor.api.fetch_sessions import FetchSessions
from executor.partitions.delayed_operations import DelayedOperations
from executor.partitions.machine.damage import Damage, find_damage
from executor.partitions.machine.events import FollowerFetched
from executor.partitions.replica import Replica
from executor.partitions.table import PartitionTable
from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import CorruptBatchError
from sparklog.storage.file_region import FileRegion, NotCachedError
from sparklog.storage.machine.epoch_checks import divergence
from sparklog.types import BrokerEpoch, BrokerId, Offset
from sparklog.wire.requests import Deferred, Request, Steps
from sparklog.wire.turns import in_one_go

logger = logging.getLogger(__name__)

_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_READ_COMMITTED: Final = 1
_PARTITIONS_AT_ONCE: Final = 100


class Fetch:
    """One Fetch request, answered or waiting."""

    __slots__ = (
        "_bucket",
        "_handler",
        "answered",
        "broker_epoch",
        "broker_id",
        "deadline_ms",
        "deferred",
        "max_bytes",
        "min_bytes",
        "read_committed",
        "reader",
        "version",
    )

    def __init__(self, handler: "FetchHandler", body: Any, version: int, now_ms: int) -> None:
        self._handler = handler
        self._bucket: int | None = None
        self.answered = False
        self.deadline_ms: int = now_ms + body.max_wait // _MILLISECOND
        self.deferred: Deferred | None = None
        """What is to be completed; None while it may still be answered at once."""
        self.version = version
        broker_id, broker_epoch = _replica_of(body, version)
        self.broker_id: BrokerId | None = broker_id
        self.broker_epoch: BrokerEpoch | None = broker_epoch
        self.min_bytes: int = body.min_bytes
        self.max_bytes: int = body.max_bytes
        self.read_committed = body.isolation_level == _READ_COMMITTED
        self.reader: Reader

    def wait(self) -> Deferred:
        """Wait for a change of what its reader reads, until the deadline."""
        if self.reader.waiting is not self:
            self.reader.waiting = self
            self._bucket = self._handler.delayed.add(self, self.deadline_ms)
        return self.defer()

    def pause(self) -> Deferred:
        """Wait for what only this request needs: no change and no deadline matters meanwhile."""
        self._stop_waiting()
        return self.defer()

    def defer(self) -> Deferred:
        """Return what will be completed."""
        if self.deferred is None:
            self.deferred = Deferred(self.leave)
        return self.deferred

    def expire(self) -> None:
        """Answer with what there is."""
        self.deadline_ms = 0
        self.recheck()

    def recheck(self) -> None:
        """Answer if there is enough now."""
        if not self.answered:
            self._handler.settle(self, self._handler.read(self))

    def is_enough(self, partitions: list[FetchedPartition]) -> bool:
        """Whether the request need not wait longer."""
        found_bytes = 0
        for partition in partitions:
            if partition.error is not None or partition.diverging_epoch is not None:
                return True
            found_bytes += partition.size_bytes
        return found_bytes >= self.min_bytes

    def leave(self) -> None:
        """Wait for nothing any more: it is answered, or nobody wants the answer."""
        self.answered = True
        self._stop_waiting()
        if not self._handler.sessions.contains(self.reader):
            for partition in self.reader.partitions.values():
                partition.unwatch()

    def _stop_waiting(self) -> None:
        if self._bucket is not None:
            self._handler.delayed.discard(self, self._bucket)
            self._bucket = None
        if self.reader.waiting is self:
            self.reader.waiting = None


class FetchHandler:
    """Answers Fetch requests."""

    def __init__(
        self,
        table: PartitionTable,
        delayed: DelayedOperations,
        sessions: FetchSessions,
        executor: Executor,
        *,
        max_response_bytes: int,
    ) -> None:
        self.delayed = delayed
        self.sessions = sessions
        self._table = table
        self._executor = executor
        self._max_response_bytes = max_response_bytes

    def handle(self, request: Request) -> Any:
        """Answer now, or return what will be answered when there is something to read."""
        body = request.body
        version = request.api_version
        now_ms = self.delayed.now_ms()
        fetch = Fetch(self, body, version, now_ms)
        try:
            fetch.reader = reader = self.sessions.begin(
                body,
                version,
                request.connection,
                is_follower=fetch.broker_id is not None,
                now_ms=now_ms,
            )
        except KafkaError as error:
            return fetch_response(version, [], self._table, error_code=error.error_code)
        if len(reader.changed) > _PARTITIONS_AT_ONCE:
            return self._handle_in_steps(fetch, now_ms)
        return self.settle(fetch, self.read(fetch, now_ms))

    def _handle_in_steps(self, fetch: Fetch, now_ms: int) -> Steps:
        partitions = yield from self._read_in_steps(fetch, now_ms, cached_only=True)
        answer = self.settle(fetch, partitions)
        if fetch.reader.waiting is fetch:
            # What has changed since its partition was looked at has woken nobody.
            self.delayed.wake(fetch)
        return answer

    def settle(self, fetch: Fetch, partitions: list[FetchedPartition]) -> Any:
        """Answer with what was read, wait for more, or look up beside the loop what it takes to read."""
        cold = [fetched for fetched in partitions if fetched.cold is not None]
        if cold:
            return self._look_up(fetch, cold)
        if (
            fetch.is_enough(partitions)
            or not fetch.reader.partitions
            or self.delayed.now_ms() >= fetch.deadline_ms
        ):
            if fetch.deferred is not None:
                fetch.leave()
            return self._answer(fetch, partitions)
        if fetch.reader.waiting is not fetch:
            for partition in partitions:
                if partition.replica is not None:
                    partition.read.watch(partition.replica)
        return fetch.wait()

    def _look_up(self, fetch: Fetch, cold: list[FetchedPartition]) -> Deferred:
        """Have what leads to the records brought into memory, then read again."""
        deferred = fetch.pause()

        def looked_up(looking: Future[list[Exception | None]]) -> None:
            for fetched, error in zip(cold, looking.result(), strict=True):
                if error is not None and fetched.replica is not None:
                    _failed(fetched.replica, fetched.read.fetch_offset, error)
            if not fetch.answered:
                # What is not in memory even now is waited for, or else this might never end.
                self.settle(fetch, self.read(fetch, cached_only=False))

        look_ups = [fetched.cold for fetched in cold if fetched.cold is not None]
        looking = asyncio.get_running_loop().run_in_executor(self._executor, look_up, look_ups)
        looking.add_done_callback(looked_up)
        return deferred

    def _answer(self, fetch: Fetch, partitions: list[FetchedPartition]) -> Any:
        """Complete the request, if it was deferred, or return the answer; later where the disk is needed."""
        deferred = fetch.deferred
        response = self._response(fetch, partitions)
        cold = {
            fetched.region: fetched.replica
            for fetched in partitions
            if fetched.region is not None and fetched.is_behind and is_cold(fetched.region)
        }
        if cold:
            later = deferred or Deferred()

            def answer_warmed(warmed: Future[list[OSError | None]]) -> None:
                for replica, error in zip(cold.values(), warmed.result(), strict=True):
                    if error is not None and replica is not None:
                        # Sending it ends the connection; whoever comes again is told why.
                        replica.fail_if_storage(error)
                later.complete(response)

            warming = asyncio.get_running_loop().run_in_executor(self._executor, warm, tuple(cold))
            warming.add_done_callback(answer_warmed)
            return later
        if deferred is not None:
            deferred.complete(response)
        return response

    def _response(self, fetch: Fetch, partitions: list[FetchedPartition]) -> Any:
        """Return the response entity, and remember in the session what it tells."""
        reader = fetch.reader
        if self.sessions.contains(reader):
            session_id: int = reader.session_id  # type: ignore[attr-defined]
            changed = reader.changed
            for fetched in partitions:
                read = fetched.read
                read.told_high_watermark = fetched.high_watermark
                read.told_log_start_offset = fetched.log_start_offset
                if fetched.size_bytes:
                    # Whoever got records goes to the end of the line, for the next answer's bytes.
                    changed.pop(read.key, None)
                    changed[read.key] = read
                elif fetched.error is None and fetched.diverging_epoch is None and not fetched.out_of_bytes:
                    changed.pop(read.key, None)
        else:
            session_id = 0
        return fetch_response(fetch.version, partitions, self._table, session_id=session_id)

    def read(
        self, fetch: Fetch, first_at_ms: int | None = None, *, cached_only: bool = True
    ) -> list[FetchedPartition]:
        """Read what has changed for the request's reader; return those partitions there is news of.

        `first_at_ms` is the time of the request, when it is read for it the first time: then a follower's
        offsets are taken as its progress. With `cached_only` no disk is waited for.
        """
        return in_one_go(self._read_in_steps(fetch, first_at_ms, cached_only=cached_only))

    def _read_in_steps(
        self, fetch: Fetch, first_at_ms: int | None, *, cached_only: bool
    ) -> Generator[None, None, list[FetchedPartition]]:
        reader = fetch.reader
        left_bytes = fetch.max_bytes
        if fetch.broker_id is None:
            left_bytes = min(left_bytes, self._max_response_bytes)
        is_first_batch = True
        found: list[FetchedPartition] = []
        for read in list(reader.changed.values()):
            yield
            fetched = FetchedPartition(read)
            try:
                replica = read.replica or self._table.find(*read.key)
                fetched.replica = replica
                if self.sessions.contains(reader):
                    read.watch(replica)
                self._read_partition(
                    fetch, fetched, replica, first_at_ms, left_bytes, is_first_batch, cached_only
                )
            except KafkaError as error:
                fetched.error = error
            except OSError as error:
                fetched.error = KafkaError(ErrorCode.kafka_storage_error, str(error))
            if fetched.size_bytes:
                left_bytes = max(0, left_bytes - fetched.size_bytes)
                is_first_batch = False
            elif (
                fetched.error is None
                and fetched.diverging_epoch is None
                and fetched.cold is None
                and read.told_high_watermark == fetched.high_watermark
                and read.told_log_start_offset == fetched.log_start_offset
            ):
                if not fetched.out_of_bytes:
                    reader.changed.pop(read.key, None)
                continue
            found.append(fetched)
        return found

    def _read_partition(
        self,
        fetch: Fetch,
        fetched: FetchedPartition,
        replica: Replica,
        first_at_ms: int | None,
        left_bytes: int,
        is_first_batch: bool,
        cached_only: bool,
    ) -> None:
        read = fetched.read
        log = replica.log
        leader = replica.leading_in(read.current_leader_epoch)
        offset = read.fetch_offset
        start = fetched.log_start_offset = log.log_start_offset
        fetched.high_watermark = fetched.last_stable_offset = replica.high_watermark
        if read.last_fetched_epoch is not None:
            fetched.diverging_epoch = divergence(replica.history, read.last_fetched_epoch, offset, start)
            if fetched.diverging_epoch is not None:
                return
        end = log.log_end_offset
        if not start <= offset <= end:
            raise KafkaError(
                ErrorCode.offset_out_of_range, f"{replica}: offset {offset} is not in [{start}, {end}]"
            )
        if fetch.broker_id is not None:
            if first_at_ms is not None:
                known_start = leader.followers.get(fetch.broker_id)
                moved = known_start is not None and known_start.log_start_offset != read.log_start_offset
                replica.handle(
                    FollowerFetched(
                        fetch.broker_id, fetch.broker_epoch, offset, read.log_start_offset, first_at_ms
                    )
                )
                if moved:
                    replica.follower_log_start_offset_moved()
            fetched.high_watermark = fetched.last_stable_offset = replica.high_watermark
            limit: Offset = end
        elif fetch.read_committed:
            limit = fetched.last_stable_offset = replica.last_stable_offset
        else:
            limit = replica.high_watermark
        if replica.unreadable:
            limit = replica.unreadable.limit(offset, limit)
        if offset >= limit:
            return
        if left_bytes == 0 and not is_first_batch:
            fetched.out_of_bytes = True
            return
        max_bytes = min(read.max_bytes, left_bytes)
        try:
            result = log.read(
                offset,
                max_bytes=max_bytes,
                up_to_offset=limit,
                min_one_batch=is_first_batch,
                cached_only=cached_only,
            )
            if fetch.read_committed:
                fetched.aborted_transactions = log.aborted_transactions(
                    offset, result.next_offset, cached_only=cached_only
                )
        except NotCachedError:
            fetched.cold = ColdLookUp(log, offset, max_bytes, limit, is_first_batch, fetch.read_committed)
            return
        except (OSError, KafkaError) as error:
            _failed(replica, offset, error)
            raise
        if result.region is None:
            fetched.out_of_bytes = True
            return
        if fetch.broker_id is not None and replica.repeated_fetches.served(fetch.broker_id, offset):
            self._look_for_damage(replica, result.region, offset)
        fetched.region = result.region
        fetched.size_bytes = len(result.region)
        fetched.is_behind = result.next_offset < end

    def _look_for_damage(self, replica: Replica, region: FileRegion, offset: Offset) -> None:
        """Read what a follower does not take, beside the loop."""

        def looked(looking: Future[Damage | None]) -> None:
            error = looking.exception()
            if error is not None:
                replica.fail_if_storage(error)
            elif (damage := looking.result()) is not None:
                replica.found_damage(damage)
            else:
                logger.warning("%s: what is at offset %d is sound, the follower is not", replica, offset)

        logger.warning("%s: a follower asks again and again for offset %d, looking at it", replica, offset)
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._executor, find_damage, region, offset).add_done_callback(looked)


def _failed(replica: Replica, offset: Offset, error: Exception) -> None:
    """Have a replica do what a failed read at an offset means for it."""
    if isinstance(error, CorruptBatchError):
        replica.found_damage(Damage(offset, None, error.message))
    else:
        replica.fail_if_storage(error)


def _replica_of(body: Any, version: int) -> tuple[BrokerId | None, BrokerEpoch | None]:
    """Return the follower that sent a request and its broker epoch; (None, None) for a consumer."""
    if version >= 15:
        state = body.replica_state
        if state.replica_id < 0:
            return None, None
        return state.replica_id, state.replica_epoch if state.replica_epoch >= 0 else None
    return (body.replica_id, None) if body.replica_id >= 0 else (None, None)
