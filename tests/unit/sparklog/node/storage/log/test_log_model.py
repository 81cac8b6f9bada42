"""A log compared with a list: whatever is done to it, every read equals the model."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.records.batch import BatchHeader, read_header
from tests.examples import examples
from tests.unit.sparklog.node.storage.batches import (
    START_MS,
    headers_of,
    load_producers_again,
    make_batch,
    read_all,
)

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=150, segment_index_bytes=200)


class LogAgainstList(RuleBasedStateMachine):
    """Does random things to a log and to a list of (header, bytes)."""

    def __init__(self) -> None:
        super().__init__()
        self.parent = Path(tempfile.mkdtemp())
        self.log = Log.open(self.parent / "t-0", CONFIG, now_ms=START_MS)
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.start = 0
        self.end = 0
        self.leader_epoch = 0

    def teardown(self) -> None:
        self.log.close(clean=False)
        shutil.rmtree(self.parent)

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=6), value_bytes=st.integers(0, 300))
    def append_as_leader(self, counts: list[int], value_bytes: int) -> None:
        for count in counts:
            batch = make_batch(count, value_bytes=value_bytes, timestamp_ms=START_MS + self.end)
            info = self.log.append_as_leader(batch, read_header(batch), self.leader_epoch, START_MS)
            assert (info.base_offset, info.last_offset) == (self.end, self.end + count - 1)
            stored = make_batch(
                count,
                base_offset=self.end,
                leader_epoch=self.leader_epoch,
                value_bytes=value_bytes,
                timestamp_ms=START_MS + self.end,
            )
            self.batches.append((headers_of(stored)[0], stored))
            self.end += count

    @rule(gaps=st.lists(st.integers(0, 5), min_size=1, max_size=12), value_bytes=st.integers(0, 300))
    def append_as_follower(self, gaps: list[int], value_bytes: int) -> None:
        added = b""
        for gap in gaps:
            stored = make_batch(
                2,
                base_offset=self.end + gap,
                leader_epoch=self.leader_epoch,
                value_bytes=value_bytes,
                timestamp_ms=START_MS + self.end,
            )
            self.batches.append((headers_of(stored)[0], stored))
            self.end += gap + 2
            added += stored
        self.log.append_as_follower(added, START_MS)

    @rule()
    def begin_leader_epoch(self) -> None:
        self.leader_epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(START_MS)

    @rule(back=st.integers(0, 60))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, self.start)
        if self.log.truncate_to(offset):
            load_producers_again(self.log)
            kept = [entry for entry in self.batches if entry[0].next_offset <= offset]
            # Truncating inside a gap of offsets leaves the end where the last batch ends.
            self.batches = kept
            self.end = self.log.log_end_offset
            assert self.end <= offset
            assert not kept or kept[-1][0].next_offset <= self.end
            self.start = min(self.start, self.end)

    @rule(ahead=st.integers(0, 30))
    def advance_log_start_offset(self, ahead: int) -> None:
        self.start = min(self.start + ahead, self.end)
        self.log.advance_log_start_offset(self.start)
        self.log.delete_old_segments(START_MS, self.end)
        self.batches = [entry for entry in self.batches if entry[0].next_offset > self.start]

    @rule(clean=st.booleans(), flushed=st.booleans())
    def reopen(self, clean: bool, flushed: bool) -> None:
        if flushed:
            self.log.flush()
        self.log.close(clean=clean)
        self.log = Log.open(
            self.log.directory,
            CONFIG,
            now_ms=START_MS,
            stop=PreviousStop.CLEAN if clean else PreviousStop.UNKNOWN,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.start,
        )

    @rule(data=st.data(), max_bytes=st.integers(1, 3000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        limit = data.draw(st.integers(self.start, self.end))
        result = self.log.read(offset, max_bytes=max_bytes, up_to_offset=limit)
        expected = [entry for entry in self.batches if offset < entry[0].next_offset <= limit]
        got = result.region.read() if result.region else b""
        count = len(headers_of(got))
        assert got == b"".join(stored for _, stored in expected[:count])
        assert bool(count) == (bool(expected) and offset < limit)
        if count:
            assert len(got) <= max_bytes or count == 1
            assert expected[count - 1][0].next_offset <= result.next_offset
            assert count == len(expected) or result.next_offset <= expected[count][0].base_offset

    @rule(data=st.data())
    def look_up_a_timestamp(self, data: st.DataObject) -> None:
        timestamp_ms = data.draw(st.integers(START_MS, START_MS + self.end + 2))
        expected = next(
            (
                (header.base_offset + i, header.base_timestamp + i, header.partition_leader_epoch)
                for header, _ in self.batches
                for i in range(header.record_count)
                if header.base_timestamp + i >= timestamp_ms and header.base_offset + i >= self.start
            ),
            None,
        )
        assert self.log.offset_for_timestamp(timestamp_ms, self.end) == expected

    @invariant()
    def everything_agrees(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        content = b"".join(stored for _, stored in self.batches)
        assert read_all(self.log, max_bytes=700) == content
        epochs = {header.partition_leader_epoch for header, _ in self.batches}
        assert epochs <= {entry.leader_epoch for entry in self.log.epochs.entries}


LogAgainstList.TestCase.settings = examples(
    25, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
TestLogAgainstList = LogAgainstList.TestCase
