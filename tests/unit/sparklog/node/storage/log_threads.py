"""One log and several threads: one changes it, the others look things up, flush it and remove its files.

What the thread that changes it has done is kept as a list of steps, each with the states the log had from
its beginning to its end. A look-up notes how many steps were over when it began and when it ended, and what
it was told; afterwards that is held against every state in between (`check`). Nothing else is allowed:
neither another answer nor an error, unless the disk was taken away or the log was closed meanwhile.
"""

import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from threading import Barrier, Thread
from typing import Any, NamedTuple

from sparklog.node.storage.files import is_disk_error, is_transient
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.leader_epochs import EpochEndOffset
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.results import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from sparklog.node.storage.segments.time_lookup import OffsetAndTimestamp
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import AbortedTransaction
from tests.unit.sparklog.node.storage.batches import (
    START_MS,
    load_producers_again,
    make_batch,
    make_marker,
    read_all,
)

CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    segment_index_bytes=400,
    retention_bytes=4000,
    retention_ms=None,
    file_delete_delay_ms=0,
)
LOOKING = 2
SWITCH_INTERVAL_S = 5e-6


class Batch(NamedTuple):
    """A batch as it is in the log."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    timestamps: tuple[int, ...]
    content: bytes
    aborts: tuple[int, int] | None = None
    """Producer id and first offset of the transaction that it aborts."""


@dataclass(frozen=True)
class State:
    """What a log holds at some moment."""

    start: int = 0
    end: int = 0
    batches: tuple[Batch, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()

    def led_in(self, leader_epoch: int) -> "State":
        if self.epochs and self.epochs[-1][0] == leader_epoch:
            return self
        # One in which nothing was written has no place in the history.
        written = tuple(entry for entry in self.epochs if entry[1] < self.end)
        return replace(self, epochs=(*written, (leader_epoch, self.end)))

    def appended(self, batch: Batch) -> "State":
        return replace(self, end=batch.end_offset, batches=(*self.batches, batch))

    def cut(self, offset: int) -> "State":
        batches = tuple(batch for batch in self.batches if batch.end_offset <= offset)
        removed = self.batches[len(batches) :]
        if not removed:
            return self
        end = removed[0].base_offset
        epochs = tuple(entry for entry in self.epochs if entry[1] < end)
        return State(min(self.start, end), end, batches, epochs)

    def started_at(self, offset: int) -> "State":
        reached = bisect_right(self.epochs, offset, key=lambda entry: entry[1])
        epochs = self.epochs
        if reached:
            epochs = ((epochs[reached - 1][0], offset), *epochs[reached:])
        return replace(self, start=offset, epochs=epochs)

    def without_segments_below(self, offset: int) -> "State":
        return replace(self, batches=tuple(batch for batch in self.batches if batch.base_offset >= offset))

    # What it answers.

    def records(self) -> Iterator[tuple[int, int, int]]:
        for batch in self.batches:
            for number, timestamp_ms in enumerate(batch.timestamps):
                yield batch.base_offset + number, timestamp_ms, batch.leader_epoch

    def first_at_or_after(self, timestamp_ms: int, high_watermark: int) -> OffsetAndTimestamp | None:
        for offset, record_ms, leader_epoch in self.records():
            if offset >= self.start and record_ms >= timestamp_ms:
                return (
                    OffsetAndTimestamp(offset, record_ms, leader_epoch) if offset < high_watermark else None
                )
        return None

    def latest(self, high_watermark: int) -> OffsetAndTimestamp | None:
        largest = max(self.records(), key=lambda record: record[1], default=None)
        return OffsetAndTimestamp(*largest) if largest is not None and largest[0] < high_watermark else None

    def epoch_at(self, offset: int) -> int | None:
        reached = bisect_right(self.epochs, offset, key=lambda entry: entry[1])
        return self.epochs[reached - 1][0] if reached else None

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> EpochEndOffset | None:
        if not self.epochs or leader_epoch > self.epochs[-1][0]:
            return None
        if leader_epoch == self.epochs[-1][0]:
            return EpochEndOffset(leader_epoch, log_end_offset)
        higher = bisect_right(self.epochs, leader_epoch, key=lambda entry: entry[0])
        return EpochEndOffset(self.epochs[higher - 1][0] if higher else leader_epoch, self.epochs[higher][1])

    def aborted(self, offset: int, up_to_offset: int) -> list[AbortedTransaction]:
        return [
            AbortedTransaction(*batch.aborts)
            for batch in self.batches
            if batch.aborts is not None and batch.base_offset >= offset and batch.aborts[1] < up_to_offset
        ]

    def next_offsets(self, offset: int, up_to_offset: int, max_bytes: int) -> list[int]:
        """Return where a read may say that reading goes on: after a batch, or several while these are small.

        Where nothing can be read, at `offset`. Segments are not known here, with which a result ends too.
        """
        ahead = [batch for batch in self.batches if batch.end_offset > offset]
        found: list[int] = []
        read_bytes = 0
        for batch in ahead:
            read_bytes += len(batch.content)
            if batch.end_offset > up_to_offset:
                if found and batch.base_offset < up_to_offset:
                    found.append(up_to_offset)  # which was a batch's end before the log was cut
                break
            if found and read_bytes > max_bytes:
                break
            found.append(batch.end_offset)
        return found or [offset]

    def region(self, offset: int, next_offset: int) -> bytes:
        return b"".join(
            batch.content
            for batch in self.batches
            if batch.end_offset > offset and batch.end_offset <= next_offset
        )


class Asked(NamedTuple):
    """A look-up: what it was told, and which steps of the log's it may have seen."""

    question: str
    first_step: int
    last_step: int
    answer: object
    expected: Callable[[State], object]


class LogUnderThreads:
    """A log, what was done to it, and what was asked of it."""

    def __init__(self, directory: Path, seed: int, ending: str) -> None:
        self.log = Log.open(directory / "t-0", CONFIG, now_ms=START_MS)
        self.random = Random(seed)
        # Drawn before any thread runs, so that a seed's steps do not depend on the order of the threads.
        self.randoms_beside = [Random(self.random.randrange(1 << 30)) for _ in range(LOOKING + 1)]
        self.ending = ending
        self.kinds = ["begin"]
        self.steps: list[list[State]] = [[State()]]
        """The states of every step; the first is the one before all. `kinds` says what they did."""
        self.cuts: list[int] = []
        """The steps that cut the log's end."""
        self.asked: list[list[Asked]] = [[] for _ in range(LOOKING)]
        self.failures: list[BaseException] = []
        self.leader_epoch = 0
        self.next_producer_id = 1
        self.disk_failed = self.closed = self.done = False
        self.all_look = Barrier(LOOKING + 1)
        """Passed before the first change: a busy machine may run the threads that look after the last one."""

    # The thread that changes the log.

    def change(self, count: int) -> None:
        """Do so many things, then end the log."""
        kinds = (
            [self._append] * 12
            + [self._abort_transaction] * 3
            + [self._roll] * 2
            + [self._retain] * 3
            + [self._truncate] * 2
            + [self._delete_records] * 2
            + [self._begin_epoch, self._empty, self._read_as_the_loop_does]
        )
        for number in range(count):
            state = self.steps[-1][-1]
            kind = self.random.choice(kinds)
            self.kinds.append(kind.__name__.strip("_"))
            if kind in (self._truncate, self._empty):
                self.cuts.append(len(self.steps))
            if self.ending == "disk" and number == count - 1:
                self.disk_failed = True
            try:
                states = kind(state)
            except (KafkaError, OSError) as error:
                # A read of a region that the log has found meets the system's own error.
                if not (self.disk_failed and (isinstance(error, OSError) or is_disk_error(error))):
                    raise
                # All that may be left of it in memory.
                self.steps.append([state, state.led_in(self.leader_epoch)])
                return
            self.steps.append([state, *states])
        if self.ending != "disk":
            self.closed = True
            if self.ending == "deletion":
                self.log.rename_with_suffix("-delete")
            else:
                self.log.close(clean=self.ending == "clean")

    def _append(self, state: State) -> list[State]:
        states = [state := state.led_in(self.leader_epoch)]
        for _ in range(self.random.randrange(1, 3)):
            batch = self._batch(state.end)
            state = state.appended(batch)
            states.append(state)
            self.log.append_as_leader(batch.content, read_header(batch.content), self.leader_epoch, START_MS)
        return states

    def _batch(self, base_offset: int, **producer: Any) -> Batch:
        count = self.random.randrange(1, 4)
        timestamp_ms = START_MS + self.random.randrange(-500, 500) + base_offset
        content = make_batch(
            count,
            base_offset=base_offset,
            leader_epoch=self.leader_epoch,
            value_bytes=self.random.randrange(60),
            timestamp_ms=timestamp_ms,
            **producer,
        )
        timestamps = tuple(range(timestamp_ms, timestamp_ms + count))
        return Batch(base_offset, base_offset + count, self.leader_epoch, timestamps, content)

    def _abort_transaction(self, state: State) -> list[State]:
        producer = {"producer_id": self.next_producer_id, "producer_epoch": 0}
        self.next_producer_id += 1
        data = self._batch(state.end, base_sequence=0, transactional=True, **producer)
        other = self._batch(data.end_offset)
        offset = other.end_offset
        marker = Batch(
            offset,
            offset + 1,
            self.leader_epoch,
            (START_MS,),
            make_marker(base_offset=offset, commit=False, leader_epoch=self.leader_epoch, **producer),
            (producer["producer_id"], data.base_offset),
        )
        states = [state := state.led_in(self.leader_epoch)]
        states += (state := state.appended(batch) for batch in (data, other, marker))
        self.log.append_as_follower(data.content + other.content + marker.content, START_MS)
        return states

    def _roll(self, state: State) -> list[State]:
        self.log.roll(START_MS)
        return []

    def _retain(self, state: State) -> list[State]:
        self.log.delete_old_segments(START_MS, self.log.log_end_offset)
        started = state.started_at(self.log.log_start_offset)
        return [started, started.without_segments_below(self.log.first_segment_base_offset)]

    def _truncate(self, state: State) -> list[State]:
        offset = max(state.end - self.random.randrange(40), state.start, 0)
        self.log.truncate_to(offset)
        load_producers_again(self.log)
        return [state.cut(offset)]

    def _empty(self, state: State) -> list[State]:
        offset = state.end + self.random.randrange(-10, 10)
        self.log.truncate_fully_and_start_at(max(offset, 0))
        return [State(max(offset, 0), max(offset, 0))]

    def _delete_records(self, state: State) -> list[State]:
        offset = min(state.start + self.random.randrange(20), state.end)
        return [state.started_at(offset)] if self.log.advance_log_start_offset(offset) else []

    def _begin_epoch(self, state: State) -> list[State]:
        self.leader_epoch += 1
        return []

    def _read_as_the_loop_does(self, state: State) -> list[State]:
        content = read_all(self.log)
        assert content == state.region(state.start, state.end)
        return []

    # The threads that look.

    def look(self, number: int) -> None:
        """Ask one thing after the other until the log has ended."""
        random = self.randoms_beside[number]
        kinds = [self._ask_time] * 4 + [
            self._ask_max_timestamp,
            self._ask_ends,
            self._ask_epoch,
            self._ask_aborted,
            self._ask_read,
        ]
        self.all_look.wait()
        while not self.done:
            self.asked[number].append(random.choice(kinds)(random))

    def _ask(self, question: str, ask: Callable[[], object], expected: Callable[[State], object]) -> Asked:
        first_step = len(self.steps) - 1
        answer: object
        try:
            answer = ask()
        except KafkaError as error:
            answer = error
        return Asked(question, first_step, len(self.steps), answer, expected)

    def _ask_time(self, random: Random) -> Asked:
        end = self.log.log_end_offset
        timestamp_ms = START_MS + end + random.randrange(-700, 500)
        return self._ask(
            f"first at or after {timestamp_ms}",
            lambda: self.log.offset_for_timestamp(timestamp_ms, end),
            lambda state: state.first_at_or_after(timestamp_ms, end),
        )

    def _ask_max_timestamp(self, random: Random) -> Asked:
        end = self.log.log_end_offset
        return self._ask(
            "the latest",
            lambda: self.log.offset_for_timestamp(MAX_TIMESTAMP, end),
            lambda state: state.latest(end),
        )

    def _ask_ends(self, random: Random) -> Asked:
        if random.random() < 0.5:
            return self._ask(
                "the start",
                lambda: self.log.offset_for_timestamp(EARLIEST_TIMESTAMP, 0).offset,  # type: ignore[union-attr]
                lambda state: state.start,
            )
        return self._ask(
            "the end",
            lambda: self.log.offset_for_timestamp(LATEST_TIMESTAMP, self.log.log_end_offset).offset,  # type: ignore[union-attr]
            lambda state: state.end,
        )

    def _ask_epoch(self, random: Random) -> Asked:
        leader_epoch = random.randrange(self.leader_epoch + 2)
        end = self.log.log_end_offset
        return self._ask(
            f"the end of epoch {leader_epoch}",
            lambda: self.log.epochs.end_offset_for(leader_epoch, end),
            lambda state: state.end_offset_for(leader_epoch, end),
        )

    def _ask_aborted(self, random: Random) -> Asked:
        end = self.log.log_end_offset
        offset = max(end - random.randrange(80), self.log.log_start_offset)
        up_to_offset = min(offset + random.randrange(1, 80), end)
        return self._ask(
            f"aborted transactions in [{offset}, {up_to_offset})",
            lambda: self.log.aborted_transactions(offset, up_to_offset),
            lambda state: state.aborted(offset, up_to_offset),
        )

    def _ask_read(self, random: Random) -> Asked:
        end = self.log.log_end_offset
        offset = max(end - random.randrange(80), 0)
        max_bytes = random.randrange(1, 900)
        first_step = len(self.steps) - 1

        def ask() -> tuple[int, bytes | None]:
            result = self.log.read(offset, max_bytes=max_bytes, up_to_offset=end)
            content: bytes | None = b""
            if result.region is not None:
                try:
                    content = result.region.read()
                except OSError:
                    assert self.disk_failed
                    content = None
            # Of a log that is cut meanwhile the bytes are gone, or others.
            cut_meanwhile = any(step >= first_step for step in self.cuts)
            return result.next_offset, None if cut_meanwhile else content

        def expected(state: State) -> object:
            if not state.start <= offset <= state.end:
                return ErrorCode.offset_out_of_range
            return state, offset, state.next_offsets(offset, end, max_bytes)

        return self._ask(f"the records from {offset} to {end}, {max_bytes} bytes", ask, expected)

    # The thread that may block.

    def keep_up(self) -> None:
        """Do what belongs beside the loop: flush, and remove files."""
        random = self.randoms_beside[LOOKING]
        log = self.log
        while not self.done:
            work = random.choice((log.flush, log.flush_rolled, lambda: log.delete_files_due(START_MS)))
            try:
                work()
            except KafkaError as error:
                allowed = (self.disk_failed and is_disk_error(error)) or (self.closed and is_transient(error))
                if not allowed:
                    raise

    # All of it.

    def run(self, steps: int) -> None:
        """Let all threads loose, wait for them, and check everything that was said."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        beside = [Thread(target=self._guarded, args=(self.look, number)) for number in range(LOOKING)]
        beside.append(Thread(target=self._guarded, args=(self.keep_up,)))
        try:
            with failing_disk(self):
                for thread in beside:
                    thread.start()
                self.all_look.wait()
                self._guarded(self.change, steps)
                self.done = True
                for thread in beside:
                    thread.join()
        finally:
            self.done = True
            sys.setswitchinterval(before)
        if self.failures:
            raise self.failures[0]
        for asked in self.asked:
            assert asked
            for one in asked:
                self.check(one)
        self._check_what_is_left()

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.failures.append(error)
            self.done = True

    def check(self, asked: Asked) -> None:
        """Hold an answer against all the states that it may be of."""
        answer = asked.answer
        if isinstance(answer, KafkaError):
            if self.disk_failed and is_disk_error(answer) and asked.last_step >= len(self.steps) - 1:
                return
            if self.closed and answer.error_code is ErrorCode.not_leader_or_follower:
                return
            if answer.error_code is not ErrorCode.offset_out_of_range:
                raise AssertionError(f"{asked.question}: {answer}") from answer
            answer = answer.error_code
        expected = []
        for step in self.steps[asked.first_step : asked.last_step + 1]:
            for state in step:
                right = asked.expected(state)
                if isinstance(right, tuple) and isinstance(right[0], State):
                    right = self._region(answer, *right)
                if right == answer:
                    return
                expected.append(right)
        raise AssertionError(
            f"{asked.question}, asked in steps {asked.first_step} to {asked.last_step} "
            f"({self.kinds[asked.first_step : asked.last_step + 1]}): {answer}, not one of {expected}"
        )

    def _region(self, answer: object, state: State, offset: int, next_offsets: list[int]) -> object:
        """Return `answer` if it may be read of a state."""
        if not isinstance(answer, tuple):
            return next_offsets
        next_offset, content = answer
        if next_offset not in next_offsets:
            return next_offsets
        return next_offset, None if content is None else state.region(offset, next_offset)

    def _check_what_is_left(self) -> None:
        """Open the log again: it has what it had."""
        if self.ending == "deletion":
            return
        state = self.steps[-1][-1]
        stop = PreviousStop.CLEAN if self.ending == "clean" else PreviousStop.KILLED
        recovery_point = self.log.recovery_point
        assert recovery_point <= state.end
        log = Log.open(
            self.log.directory,
            CONFIG,
            now_ms=START_MS,
            stop=stop,
            recovery_point=recovery_point,
            log_start_offset=state.start,
        )
        try:
            if self.ending != "disk":
                assert (log.log_start_offset, log.log_end_offset) == (state.start, state.end)
                assert read_all(log) == state.region(state.start, state.end)
        finally:
            log.close(clean=False)


@contextmanager
def failing_disk(world: LogUnderThreads) -> Iterator[None]:
    """Have the system refuse to read and write the log's files once its disk has failed."""
    names = ("pread", "pwrite", "pwritev", "open", "fsync", "fdatasync", "ftruncate")
    real = {name: getattr(os, name) for name in names}

    def guard(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if world.disk_failed:
                raise OSError(5, "the disk is gone")
            return real[name](*arguments)

        return call

    for name in names:
        setattr(os, name, guard(name))
    try:
        yield
    finally:
        for name in names:
            setattr(os, name, real[name])
