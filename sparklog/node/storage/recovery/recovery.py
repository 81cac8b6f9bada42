"""Loading a log from its directory into segments, epochs and producers.

After a clean stop the files are taken as they are, checked at their ends. Otherwise everything from the
recovery point on is read (`segment_recovery`), the log ends at the first damage, and the data behind it is
set aside (`cut_files`): replication brings it back. Missing or mismatched indexes are rebuilt in either case;
so is a leader epoch checkpoint, from the batches. `LoadedLog.missing` describes records that the replica is
known to have lost.
"""

import logging
from collections.abc import Iterable, Set
from pathlib import Path
from typing import NamedTuple

from sparklog.node.storage.checkpoints import CorruptCheckpointError, read_leader_epochs, write_leader_epochs
from sparklog.node.storage.file_region import LogFile
from sparklog.node.storage.files import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_GAPS_MARKER,
    PRODUCER_SNAPSHOT_SUFFIX,
    REBUILT_EPOCHS_MARKER,
    SEGMENT_SUFFIXES,
    offset_file,
    offset_of,
)
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.node.storage.machine.producer_states import ProducerStates
from sparklog.node.storage.machine.recovery_rules import (
    Cut,
    PreviousStop,
    SoundPrefix,
    tiered_start,
    what_is_missing,
)
from sparklog.node.storage.producers.producer_replay import load_producers
from sparklog.node.storage.recovery.swap_recovery import settled_names
from sparklog.node.storage.segments.batch_walk import header_at, walk_headers
from sparklog.node.storage.segments.cut_files import cut_segment, set_segment_aside
from sparklog.node.storage.segments.segment import Segment
from sparklog.node.storage.segments.segment_list import number_of
from sparklog.node.storage.segments.segment_recovery import indexes_are_sound, recover_segment
from sparklog.protocol.records.batch import BatchHeader, CorruptBatchError
from sparklog.protocol.types import Offset, TimestampMs

logger = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    segments: tuple[Segment, ...]
    """At least one; the last is active."""
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: Offset
    log_start_is_guessed: bool
    """Whether the start of a tiered log is what files that were not fsynced say, if any do."""
    log_end_offset: Offset
    recovery_point: Offset
    may_have_gaps: bool
    """Whether offsets may be missing between batches: a compacted log, or a replica of one."""
    checked_bytes: int
    """Bytes that were read to find the sound part: none after a clean stop."""
    missing: str | None
    """Description of lost records; None if none are known to be missing."""


def load_log(
    directory: Path,
    config: LogConfig,
    *,
    recovery_point: Offset,
    log_start_offset: Offset | None,
    high_watermark: Offset,
    cleaned_offset: Offset | None,
    stop: PreviousStop,
    now_ms: TimestampMs,
) -> LoadedLog:
    """Load the log in `directory`, which exists; recover it unless the last stop was clean.

    `log_start_offset` is the checkpointed one, None without an entry.

    Raises:
        OSError: the files cannot be read or written.
    """
    names = settled_names(directory)
    # Kafka has no such marker, but records which logs it has cleaned.
    may_have_gaps = config.compacts or cleaned_offset is not None or OFFSET_GAPS_MARKER in names
    checkpointed = _read_epochs(directory) if LEADER_EPOCH_CHECKPOINT in names else None
    is_rebuilt = REBUILT_EPOCHS_MARKER in names
    epochs_start = (
        checkpointed.entries[0].start_offset
        if checkpointed is not None and checkpointed.entries and not is_rebuilt
        else None
    )
    checkpointed_start = log_start_offset
    log_start_offset = log_start_offset or 0
    scan = _Scan(
        _open_segments(directory, names, now_ms),
        config,
        recovery_point,
        SoundPrefix(log_start_offset, checkpointed or LeaderEpochs(), stop, may_have_gaps=may_have_gaps),
        stop,
        LeaderEpochs() if checkpointed is None else LeaderEpochs(checkpointed.entries),
    )
    segments = scan.run()
    log_end_offset = segments[-1].reload_max_timestamp() if segments else log_start_offset
    missing: str | None = None
    if segments and log_end_offset < log_start_offset:
        if stop is PreviousStop.UNKNOWN or scan.cut is not None:
            missing = f"it ended at {log_end_offset}, below its start {log_start_offset}"
            for segment in segments:
                set_segment_aside(segment, missing)
            segments = []
            scan.epochs.clear()
            log_end_offset = log_start_offset
        else:
            # The log has lost nothing, so the checkpoint is of a deleted log of the same name.
            logger.warning("%s ends before its checkpointed start %d", directory, log_start_offset)
            log_start_offset = segments[0].base_offset
    elif stop is PreviousStop.KILLED and epochs_start is not None:
        # The start is where the epochs begin: they are cut when it moves.
        log_start_offset = min(log_start_offset, epochs_start)
    if not segments:
        segments = [Segment.create(directory, log_start_offset, config, now_ms=now_ms)]
    segments[-1].synced = False
    segments[-1].make_active(config)
    segments[-1].first_timestamp()
    first_of_tier = tiered_start(
        stop,
        segments[0].base_offset,
        checkpointed_start=checkpointed_start,
        epochs_start=epochs_start,
        is_tiered=config.remote_storage_enable,
    )
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if first_of_tier is not None:
        log_start_offset = first_of_tier
    epochs = _settled_epochs(scan, checkpointed, segments, log_start_offset, log_end_offset)
    if first_of_tier is not None and epochs.entries and epochs.entries[0].start_offset > first_of_tier:
        (directory / REBUILT_EPOCHS_MARKER).touch()
    stored: tuple[EpochEntry, ...] | None = () if checkpointed is None else checkpointed.entries
    if checkpointed is None and LEADER_EPOCH_CHECKPOINT in names:
        stored = None  # and not valid
    # Epochs of a log that never had a record stay in the file: a start would write thousands of these.
    if stored is None or (log_end_offset and (epochs.entries != stored or scan.checked_from is not None)):
        write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, epochs.entries, sync=False)
    _remove_stray_snapshots(directory, names, segments, log_end_offset)
    producers = load_producers(
        directory,
        segments,
        log_end_offset=log_end_offset,
        replay_from=log_end_offset if scan.checked_from is None else scan.checked_from,
        now_ms=now_ms,
    )
    sum(producers.remove_expired(now_ms, config.producer_id_expiration_ms))
    missing = missing or what_is_missing(
        stop, log_end_offset, recovery_point=recovery_point, high_watermark=high_watermark, cut=scan.cut
    )
    if missing is not None:
        logger.error("%s has lost records of this replica: %s", directory, missing)
    for segment in segments[:-1]:
        segment.close_indexes()
    is_flushed = stop is PreviousStop.CLEAN and scan.checked_from is None
    return LoadedLog(
        segments=tuple(segments),
        epochs=epochs,
        producers=producers,
        log_start_offset=log_start_offset,
        log_start_is_guessed=config.remote_storage_enable
        and (
            stop is PreviousStop.UNKNOWN
            or (stop is PreviousStop.KILLED and checkpointed_start is None and epochs_start is None)
        ),
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset if is_flushed else min(recovery_point, log_end_offset),
        may_have_gaps=may_have_gaps,
        checked_bytes=scan.checked_bytes,
        missing=missing,
    )


class _Scan:
    """One pass over the segments of a log, oldest first, up to the first damage."""

    def __init__(
        self,
        found: list[Segment],
        config: LogConfig,
        recovery_point: Offset,
        prefix: SoundPrefix,
        stop: PreviousStop,
        epochs: LeaderEpochs,
    ) -> None:
        self.epochs = epochs
        """The checkpointed epochs, and those that the checked batches add."""
        self.checked_from: Offset | None = None
        """First offset of the part that was read again; None if there was none."""
        self.checked_bytes = 0
        self.cut: Cut | None = None
        self.checkpoint_is_wrong = False
        self._found = found
        self.may_have_gaps = prefix.may_have_gaps
        self._config = config
        self._recovery_point = recovery_point
        self._prefix = prefix
        self._stop = stop
        self._first_unchecked = len(found)
        if stop is not PreviousStop.CLEAN and found:
            below = [i for i, segment in enumerate(found) if segment.base_offset <= recovery_point]
            self._first_unchecked = below[-1] if below else 0

    def run(self) -> list[Segment]:
        """Return the segments that stay."""
        kept: list[Segment] = []
        for number, segment in enumerate(self._found):
            if number == 0 or self._may_jump_to(segment):
                self._prefix.end_offset = segment.base_offset
            elif segment.base_offset != self._prefix.end_offset:
                self.cut = Cut(
                    self._prefix.end_offset,
                    f"the next segment begins at {segment.base_offset}, not at {self._prefix.end_offset}",
                    torn=False,
                )
                break
            kept.append(segment)
            self._load(number, segment)
            if self.cut is not None:
                # Data behind the beginning of a batch was written after it.
                is_last = number == len(self._found) - 1
                self.cut = Cut(self.cut.offset, self.cut.reason, self.cut.torn and is_last)
                break
        else:
            reason = self._prefix.finish()
            if reason is not None:
                self.cut = Cut(self._prefix.end_offset, reason, torn=False)
        self.checkpoint_is_wrong = self._prefix.checkpoint_is_wrong
        if self.cut is not None:
            self._end_at(kept, self.cut)
        return kept

    def _may_jump_to(self, segment: Segment) -> bool:
        return self._prefix.may_have_gaps and segment.base_offset > self._prefix.end_offset

    def _load(self, number: int, segment: Segment) -> None:
        trusted = self._recovery_point
        if number < self._first_unchecked:
            thorough = self._stop is not PreviousStop.CLEAN
            if indexes_are_sound(segment, self._config, thorough=thorough):
                end_offset = _end_if_sound(segment)
                if end_offset is not None:
                    segment.synced = True
                    self._prefix.end_offset = end_offset
                    return
            logger.warning("Rebuilding the indexes of %s", segment.file.path)
            trusted = segment.base_offset
        self.cut = recover_segment(segment, trusted, self._config, self._prefix, self._checked)
        if self.checked_from is None:
            self.checked_from = segment.base_offset

    def _checked(self, header: BatchHeader) -> None:
        if self.checked_from is None:
            self.checked_from = header.base_offset
        self.checked_bytes += header.size_bytes
        leader_epoch = header.partition_leader_epoch
        if leader_epoch >= 0 and (self.epochs.latest is None or leader_epoch > self.epochs.latest):
            self.epochs.assign(leader_epoch, header.base_offset)

    def _end_at(self, kept: list[Segment], cut: Cut) -> None:
        """Remove everything from the cut on from the log."""
        for behind in self._found[len(kept) :]:
            set_segment_aside(behind, f"it is behind damage at offset {cut.offset}")
        while len(kept) > 1 and kept[-1].base_offset > cut.offset:
            set_segment_aside(kept.pop(), f"it is behind damage at offset {cut.offset}")
        position = kept[-1].position_of(cut.offset)
        if position < kept[-1].size_bytes:
            cut_segment(kept[-1], position, cut.reason)
            kept[-1].truncate_to(cut.offset, self._config)
            kept[-1].seal()


def _end_if_sound(segment: Segment) -> Offset | None:
    """Return the offset after a segment's last batch; None if its end is damaged."""
    try:
        return segment.reload_max_timestamp()
    except CorruptBatchError as error:
        logger.warning("%s is damaged: %s", segment.file.path, error)
        return None


def _settled_epochs(
    scan: _Scan,
    checkpointed: LeaderEpochs | None,
    segments: list[Segment],
    log_start_offset: Offset,
    log_end_offset: Offset,
) -> LeaderEpochs:
    """Return the log's epochs: the file's if the batches agree, else those of the batches."""
    epochs = scan.epochs
    if checkpointed is not None and not scan.checkpoint_is_wrong:
        epochs.truncate_from_end(log_end_offset)
        epochs.truncate_from_start(log_start_offset)
        # Of records that are in the tier alone the file is the only evidence.
        local_start = max(log_start_offset, segments[0].base_offset)
        local_epochs = LeaderEpochs(epochs.entries)
        local_epochs.truncate_from_start(local_start)
        if _epochs_fit(
            local_epochs,
            segments,
            local_start,
            log_end_offset,
            may_have_gaps=scan.may_have_gaps,
        ):
            return epochs
    if checkpointed is not None:
        logger.warning("Rebuilding the leader epochs of %s from its batches", segments[0].directory)
    epochs = _epochs_from_batches(segments)
    epochs.truncate_from_start(log_start_offset)
    return epochs


def _epochs_fit(
    epochs: LeaderEpochs,
    segments: list[Segment],
    log_start_offset: Offset,
    log_end_offset: Offset,
    *,
    may_have_gaps: bool,
) -> bool:
    """Whether the batches on both sides of each epoch's beginning, and the last one, match the epochs."""
    entries = epochs.entries
    if log_end_offset == log_start_offset:
        return not entries or entries[0].start_offset == log_start_offset
    if not entries:
        return _epoch_at(segments, log_start_offset) is None
    if entries[0].start_offset > log_start_offset and _epoch_at(segments, log_start_offset) is not None:
        return False
    if may_have_gaps:
        return all(
            _is_true_of_next_batch(epochs, segments, entry.start_offset) for entry in entries
        ) and _epoch_at(segments, log_end_offset - 1) in (None, epochs.latest)
    before: int | None = None
    for leader_epoch, start_offset in entries:
        if _epoch_at(segments, start_offset) != leader_epoch:
            return False
        if before is not None and _epoch_at(segments, start_offset - 1) != before:
            return False
        before = leader_epoch
    return _epoch_at(segments, log_end_offset - 1) == before


def _is_true_of_next_batch(epochs: LeaderEpochs, segments: list[Segment], offset: Offset) -> bool:
    """Whether the first batch that reaches to `offset` has the expected epoch; true if there is none.

    If all batches of an epoch are compacted away, the file is the only evidence.
    """
    for segment in segments[number_of(segments, offset) :]:
        position = segment.position_of(offset)
        if position < segment.size_bytes:
            header = header_at(segment.file, position, segment.size_bytes)
            return header.partition_leader_epoch == epochs.epoch_at(max(header.base_offset, offset))
    return True


def _epoch_at(segments: list[Segment], offset: Offset) -> int | None:
    """Return the leader epoch of the first batch that reaches to `offset`; None if it has none."""
    for segment in reversed(segments):
        if segment.base_offset <= offset:
            position = segment.position_of(offset)
            if position < segment.size_bytes:
                header = header_at(segment.file, position, segment.size_bytes)
                return header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
            return None
    return None


def _open_segments(directory: Path, names: Set[str], now_ms: TimestampMs) -> list[Segment]:
    """Open the segments; remove the files of an interrupted deletion."""
    base_offsets = []
    indexes = []
    for name in sorted(names):
        if name.endswith((DELETED_SUFFIX, ".tmp")):
            (directory / name).unlink()
        elif offset_of(name) is not None and name.endswith(SEGMENT_SUFFIXES):
            if name.endswith(LOG_SUFFIX):
                base_offsets.append(int(name.partition(".")[0]))
            else:
                indexes.append(directory / name)
    for path in indexes:
        if offset_of(path.name) not in base_offsets:
            logger.warning("Removing %s: its log file is missing", path)
            path.unlink()
    segments = []
    for base_offset in base_offsets:
        file = LogFile.open(offset_file(directory, base_offset, LOG_SUFFIX))
        segment = Segment(directory, base_offset, file, file.size_bytes(), created_ms=now_ms)
        if segment.transaction_index.name in names:
            segment.transaction_index.load()
        segments.append(segment)
    return segments


def _read_epochs(directory: Path) -> LeaderEpochs | None:
    """Return the checkpointed epochs; None if the checkpoint is invalid."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        entries = read_leader_epochs(path)
        epochs = LeaderEpochs(entries)
        if list(epochs.entries) == entries:
            return epochs
        logger.warning("Rebuilding the leader epochs from the log: those of %s do not rise", path)
    except CorruptCheckpointError as error:
        logger.warning("Rebuilding the leader epochs from the log: %s", error)
    return None


def _epochs_from_batches(segments: list[Segment]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for segment in segments:
        for _, header in walk_headers(segment.file, 0, segment.size_bytes):
            leader_epoch = header.partition_leader_epoch
            if leader_epoch >= 0 and (epochs.latest is None or leader_epoch > epochs.latest):
                epochs.assign(leader_epoch, header.base_offset)
    return epochs


def _remove_stray_snapshots(
    directory: Path, names: Iterable[str], segments: list[Segment], log_end_offset: Offset
) -> None:
    """Keep the snapshots at the segments' base offsets and the newest one, none above the log's end."""
    snapshots = sorted(
        directory / name
        for name in names
        if name.endswith(PRODUCER_SNAPSHOT_SUFFIX) and offset_of(name) is not None
    )
    base_offsets = {segment.base_offset for segment in segments}
    sound = [path for path in snapshots if int(path.name.partition(".")[0]) <= log_end_offset]
    for path in snapshots:
        offset = int(path.name.partition(".")[0])
        if offset > log_end_offset or (offset not in base_offsets and path != sound[-1]):
            path.unlink()
