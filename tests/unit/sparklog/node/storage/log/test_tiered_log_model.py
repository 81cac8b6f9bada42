"""A tiered log compared with a list: it never loses what the tier lacks, nor its start, nor an epoch."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparklog.node.storage.directory.directory_checkpoints import log_start_offset_to_keep
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.records.batch import BatchHeader, read_header
from tests.unit.sparklog.node.storage.batches import (
    START_MS,
    headers_of,
    load_producers_again,
    make_batch,
)

CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=150,
    file_delete_delay_ms=0,
    remote_storage_enable=True,
    retention_ms=None,
    local_retention_bytes=0,
)


class TieredLogAgainstList(RuleBasedStateMachine):
    """Does random things to a log, to a list of its batches, and to the end of its tier."""

    def __init__(self) -> None:
        super().__init__()
        self.parent = Path(tempfile.mkdtemp())
        self.log = Log.open(self.parent / "t-0", CONFIG, now_ms=START_MS)
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.start = self.end = self.tiered_end = self.leader_epoch = 0

    def teardown(self) -> None:
        self.log.close(clean=False)
        shutil.rmtree(self.parent)

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=8))
    def append(self, counts: list[int]) -> None:
        for count in counts:
            batch = make_batch(count, value_bytes=100)
            self.log.append_as_leader(batch, read_header(batch), self.leader_epoch, START_MS)
            stored = make_batch(count, base_offset=self.end, leader_epoch=self.leader_epoch, value_bytes=100)
            self.batches.append((headers_of(stored)[0], stored))
            self.end += count

    @rule()
    def begin_leader_epoch(self) -> None:
        self.leader_epoch += 1

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(data=st.data())
    def copy(self, data: st.DataObject) -> None:
        ends = [header.next_offset for header, _ in self.batches if header.next_offset > self.tiered_end]
        if ends:
            self.tiered_end = data.draw(st.sampled_from(ends))

    @rule(renames=st.booleans())
    def cut(self, renames: bool) -> None:
        before = self.log.local_log_start_offset
        self.log.delete_old_segments(START_MS, self.end, tiered_end=self.tiered_end)
        after = self.log.local_log_start_offset
        assert after == before or after <= self.tiered_end
        if renames:
            self.log.delete_files_due(START_MS)

    @rule(ahead=st.integers(0, 10))
    def advance_log_start_offset(self, ahead: int) -> None:
        self.start = min(self.start + ahead, self.end)
        self.log.advance_log_start_offset(self.start)
        self.tiered_end = max(self.tiered_end, self.start)

    @rule(back=st.integers(1, 20))
    def truncate_above_the_tier(self, back: int) -> None:
        offset = max(self.end - back, self.tiered_end)
        if self.log.truncate_to(offset):
            load_producers_again(self.log)
            self.batches = [entry for entry in self.batches if entry[0].next_offset <= offset]
            self.end = self.log.log_end_offset
            self.start = min(self.start, self.end)
            self.tiered_end = min(self.tiered_end, self.end)

    @rule()
    def lose_the_disk_and_adopt(self) -> None:
        if self.tiered_end < self.end or self.start == self.end:
            return
        self.log.close(clean=False)
        shutil.rmtree(self.log.directory)
        self.log = Log.open(self.parent / "t-0", CONFIG, now_ms=START_MS)
        self.log.adopt(
            leader_epochs=self.epochs().entries,
            producers=None,
            log_start_offset=self.start,
            end_offset=self.end,
            now_ms=START_MS,
        )

    @rule(stop=st.sampled_from(PreviousStop))
    def reopen(self, stop: PreviousStop) -> None:
        recovery_point = self.log.recovery_point
        if stop is PreviousStop.CLEAN:
            self.log.close()
            recovery_point = self.log.recovery_point
        checkpointed = log_start_offset_to_keep(self.log)
        if stop is not PreviousStop.CLEAN:
            self.log.close(clean=False)
        self.log = Log.open(
            self.log.directory,
            CONFIG,
            now_ms=START_MS,
            stop=stop,
            recovery_point=recovery_point,
            log_start_offset=checkpointed,
        )
        assert self.log.missing is None
        if self.log.log_start_is_guessed and self.start == self.end:
            # Nothing on the disk says where an empty log begins: its leader reads the tier's manifest.
            self.log.advance_log_start_offset(self.start)

    def epochs(self) -> LeaderEpochs:
        """Return the epochs of the records from the start on."""
        epochs = LeaderEpochs()
        for header, _ in self.batches:
            if epochs.latest != header.partition_leader_epoch:
                epochs.assign(*EpochEntry(header.partition_leader_epoch, header.base_offset))
        epochs.truncate_from_start(self.start)
        return epochs

    @invariant()
    def everything_agrees(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert self.start <= log.local_log_start_offset <= max(self.tiered_end, self.start)
        local = [stored for header, stored in self.batches if header.next_offset > log.local_log_start_offset]
        assert self.read_local() == b"".join(local)
        known = log.epochs
        for header, _ in self.batches:
            if header.base_offset >= self.start:
                assert known.epoch_at(header.base_offset) == header.partition_leader_epoch

    def read_local(self) -> bytes:
        found, offset = b"", self.log.local_log_start_offset
        while offset < self.end:
            result = self.log.read(offset, max_bytes=700, up_to_offset=self.end)
            assert result.region is not None
            found += result.region.read()
            offset = result.next_offset
        return found


TieredLogAgainstList.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
TestTieredLogAgainstList = TieredLogAgainstList.TestCase
