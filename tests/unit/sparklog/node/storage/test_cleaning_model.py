"""A log that is cleaned, compared with what was written to it: whatever happens, nothing that counts goes."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.producer_states import Duplicate
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.records.batch import BatchHeader, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec
from tests.examples import examples
from tests.unit.sparklog.node.storage.batches import START_MS, make_marker
from tests.unit.sparklog.node.storage.cleanings import (
    LIMITS,
    Kept,
    clean_round,
    committed,
    records_from,
    state_of,
)

DELETE_RETENTION_MS = 1000
CONFIG = LogConfig(
    segment_bytes=900,
    index_interval_bytes=100,
    segment_index_bytes=400,
    compacts=True,
    deletes=False,
    delete_retention_ms=DELETE_RETENTION_MS,
)
KEYS = [b"", b"a", b"b", b"b\0", b"key-9" * 3, b"k" * 40, b"k" * 130]


class CleanedLogs(RuleBasedStateMachine):
    """Two replicas of a log, cleaned at different times, and all that was ever written to them."""

    def __init__(self) -> None:
        super().__init__()
        self.parent = Path(tempfile.mkdtemp())
        self.logs = [
            Log.open(self.parent / f"{name}" / "t-0", CONFIG, now_ms=START_MS) for name in self._directories()
        ]
        self.written: dict[int, Kept] = {}
        self.now_ms = START_MS
        self.leader_epoch = 0
        self.open: dict[int, int] = {}
        """Producers with a transaction under way: its first offset."""
        self.aborted: set[int] = set()
        """Offsets of what is in an aborted transaction."""
        self.sequences: dict[int, int] = {}
        self.last_batches: dict[int, BatchHeader] = {}
        self.has_deleted = False
        self.tombstones: dict[int, int] = {}
        """When a cleaning may have met a tombstone first, by its offset."""

    def _directories(self) -> list[str]:
        names = ["leader", "follower"]
        for name in names:
            (self.parent / name).mkdir(exist_ok=True)
        return names

    def teardown(self) -> None:
        for log in self.logs:
            log.close(clean=False)
        shutil.rmtree(self.parent)

    def _append(self, batch: bytes) -> None:
        self.logs[0].append_as_follower(batch, self.now_ms)

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8),
        values=st.lists(st.one_of(st.none(), st.binary(max_size=30)), min_size=8, max_size=8),
        codec=st.sampled_from([Codec.NONE, Codec.ZSTD, Codec.LZ4]),
        producer=st.sampled_from([None, None, 1, 2]),
        transactional=st.booleans(),
        headers=st.sampled_from([(), (("h", b"v"), ("n", None))]),
    )
    def produce(
        self,
        keys: list[bytes],
        values: list[bytes | None],
        codec: Codec,
        producer: int | None,
        transactional: bool,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> None:
        end = self.logs[0].log_end_offset
        transactional = producer is not None and (transactional or producer in self.open)
        records = [
            SimpleRecord(key, value, headers, self.now_ms + place * 7 - 10)
            for place, (key, value) in enumerate(zip(keys, values, strict=False))
        ]
        sequence = None if producer is None else self.sequences.get(producer, 0)
        batch = build_batch(
            records,
            base_offset=end,
            leader_epoch=self.leader_epoch,
            producer_id=producer,
            producer_epoch=None if producer is None else 0,
            base_sequence=sequence,
            codec=codec,
            transactional=transactional,
        )
        self._append(batch)
        if producer is not None:
            self.sequences[producer] = (sequence or 0) + len(records)
            self.last_batches[producer] = read_header(batch)
            if transactional:
                self.open.setdefault(producer, end)
        for place, record in enumerate(records):
            self.written[end + place] = Kept(
                end + place,
                record.key,
                record.value,
                record.timestamp_ms,
                record.headers,
                self.leader_epoch,
                codec,
                -1 if producer is None else producer,
                False,
            )

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        producer = next(iter(self.open))
        first = self.open.pop(producer)
        end = self.logs[0].log_end_offset
        self._append(
            make_marker(
                base_offset=end,
                producer_id=producer,
                producer_epoch=0,
                commit=commit,
                leader_epoch=self.leader_epoch,
            )
        )
        if not commit:
            self.aborted |= {
                offset
                for offset, record in self.written.items()
                if offset >= first and record.producer_id == producer
            }

    @precondition(lambda self: self.last_batches)
    @rule()
    def retry(self) -> None:
        producers = self.logs[0].producers
        for producer, header in self.last_batches.items():
            if producer in producers.producers:
                known = producers.check(header)
                assert isinstance(known, Duplicate)
                assert (known.base_offset, known.last_offset) == (header.base_offset, header.last_offset)

    @rule(part=st.floats(0, 1))
    def delete(self, part: float) -> None:
        committed_up_to = min(log.log_end_offset for log in self.logs)
        before_offset = int(committed_up_to * part)
        for log in self.logs:
            self.has_deleted |= log.advance_log_start_offset(before_offset)
            log.delete_old_segments(self.now_ms, committed_up_to)

    @rule()
    def elect(self) -> None:
        self.leader_epoch += 1

    @rule()
    def roll(self) -> None:
        for log in self.logs:
            log.roll(self.now_ms)

    @rule()
    def replicate(self) -> None:
        leader, follower = self.logs
        while follower.log_end_offset < leader.log_end_offset:
            result = leader.read(follower.log_end_offset, max_bytes=1000, up_to_offset=leader.log_end_offset)
            assert result.region is not None
            follower.append_as_follower(result.region.read(), self.now_ms)
            if follower.log_end_offset < result.next_offset:
                # Only the end of a segment was compacted away.
                assert result.next_offset == leader.log_end_offset
                break

    @rule(ms=st.sampled_from([1, 600, 1500]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(which=st.sampled_from([0, 1]), room=st.sampled_from([2, 5, 1000]))
    def clean(self, which: int, room: int) -> None:
        log = self.logs[which]
        high_watermark = min(log.log_end_offset for log in self.logs)
        limits = LIMITS._replace(dedupe_buffer_bytes=24 * (room + 2), window_bytes=300)
        before = log.cleaned_offset or 0
        outcome = clean_round(log, self.now_ms, high_watermark=high_watermark, limits=limits)
        if outcome is not None:
            assert (
                outcome.cleaned_up_to > before
                or before >= min(high_watermark, log.segments.active.base_offset)
                or log.last_stable_offset(high_watermark) <= before
            )
            for offset, record in self.written.items():
                if record.value is None and offset < outcome.cleaned_up_to:
                    self.tombstones.setdefault(offset, self.now_ms)

    @rule(which=st.sampled_from([0, 1]), stop=st.sampled_from(PreviousStop), snapshots_lost=st.booleans())
    def open_again(self, which: int, stop: PreviousStop, snapshots_lost: bool) -> None:
        log = self.logs[which]
        if stop is not PreviousStop.CLEAN:
            log.flush()
        log.close(clean=stop is PreviousStop.CLEAN)
        if snapshots_lost:
            for path in log.directory.glob("*.snapshot"):
                path.unlink()
        end = log.log_end_offset
        self.logs[which] = again = Log.open(
            log.directory,
            CONFIG,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            cleaned_offset=log.cleaned_offset,
            stop=stop,
            now_ms=self.now_ms,
        )
        assert again.log_end_offset == end
        assert again.missing is None
        if again.log_start_offset < end:
            assert again.epochs.entries == log.epochs.entries

    @invariant()
    def everything_that_counts_is_there(self) -> None:
        for log in self.logs:
            end = log.log_end_offset
            start = log.log_start_offset
            history = [record for offset, record in sorted(self.written.items()) if start <= offset < end]
            shown = records_from(log, log.log_start_offset)
            data = [record for record in shown if not record.is_control]
            assert [record.offset for record in shown] == sorted({record.offset for record in shown})
            assert all(self.written[record.offset] == record for record in data)
            open_from = dict(self.open)

            def counts(record: Kept, open_from: dict[int, int] = open_from) -> bool:
                return record.offset not in self.aborted and record.offset < open_from.get(
                    record.producer_id, 2**62
                )

            # What of an aborted transaction is left, the index says.
            unended = [record for record in committed(log, shown) if record.offset < self._stable(log)]
            stable = [record for record in history if record.offset < self._stable(log)]
            assert all(record.offset not in self.aborted for record in unended)
            assert state_of(unended) == state_of([record for record in stable if counts(record)])
            dirty = max(log.cleaned_offset or 0, log.log_start_offset)
            assert [r for r in data if r.offset >= dirty and log is self.logs[0]] == [
                r for r in history if r.offset >= dirty and log is self.logs[0]
            ]

    def _stable(self, log: Log) -> int:
        return log.last_stable_offset(log.log_end_offset)

    @invariant()
    def tombstones_stay_as_long_as_they_must(self) -> None:
        log = self.logs[0]
        shown = {record.offset for record in records_from(log, log.log_start_offset)}
        last = {
            record.key: offset
            for offset, record in sorted(self.written.items())
            if offset not in self.aborted
        }
        for offset, met_ms in self.tombstones.items():
            key = self.written[offset].key
            if last.get(key) == offset >= log.log_start_offset and self.now_ms < met_ms + DELETE_RETENTION_MS:
                assert offset in shown

    @invariant()
    def producers_are_known(self) -> None:
        producers = self.logs[0].producers.producers
        known = {
            producer: state.batches[-1].last_sequence + 1
            for producer, state in producers.items()
            if state.batches
        }
        # What deletion took away nobody can remember without a snapshot.
        assert known == self.sequences or (self.has_deleted and known.items() <= self.sequences.items())

    @invariant()
    def replicas_agree(self) -> None:
        leader, follower = (
            {record.offset: record for record in records_from(log, log.log_start_offset)} for log in self.logs
        )
        assert all(follower[offset] == leader[offset] for offset in leader.keys() & follower.keys())


TestCleanedLogs = CleanedLogs.TestCase
TestCleanedLogs.settings = examples(
    15,
    stateful_step_count=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
