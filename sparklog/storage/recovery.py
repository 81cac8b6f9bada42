"""Loading a log from its directory: what is on the disk becomes segments, epochs and producers.

After a clean stop the files are taken as they are, checked at their ends. Otherwise everything from the
recovery point on is read (`segment_recovery`), the log ends at the first damage, and what lies behind it is
removed: replication brings it back. Indexes that are missing or do not fit their log are rebuilt in either
case; so is a leader epoch checkpoint, from the batches.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from sparklog.records.batch import CorruptBatchError
from sparklog.storage.batch_walk import walk_headers
from sparklog.storage.checkpoints import CorruptCheckpointError, read_leader_epochs, write_leader_epochs
from sparklog.storage.file_region import LogFile
from sparklog.storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SEGMENT_SUFFIXES,
    offset_file,
    offset_of,
)
from sparklog.storage.leader_epochs import LeaderEpochs
from sparklog.storage.log_config import LogConfig
from sparklog.storage.producer_replay import load_producers
from sparklog.storage.producer_states import ProducerStates
from sparklog.storage.segment import Segment
from sparklog.storage.segment_recovery import indexes_are_sound, recover_segment
from sparklog.types import Offset, TimestampMs

logger = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    """What `load_log` found."""

    segments: tuple[Segment, ...]
    """At least one; the last is active."""
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset


def load_log(
    directory: Path,
    config: LogConfig,
    *,
    recovery_point: Offset,
    log_start_offset: Offset,
    clean: bool,
    now_ms: TimestampMs,
) -> LoadedLog:
    """Load and, unless `clean`, recover the log in `directory`, which exists.

    Raises:
        OSError: the files cannot be read or written.
    """
    found = _open_segments(directory, now_ms)
    epochs, epochs_known = _read_epochs(directory)
    segments: list[Segment] = []
    checked_from: Offset | None = None
    first_unchecked = len(found)
    if not clean and found:
        bases_below = [i for i, segment in enumerate(found) if segment.base_offset <= recovery_point]
        first_unchecked = bases_below[-1] if bases_below else 0
    for number, segment in enumerate(found):
        segments.append(segment)
        size_before = segment.size_bytes
        if number < first_unchecked:
            if indexes_are_sound(segment, config, thorough=not clean) and not (
                number == len(found) - 1 and _end_is_damaged(segment)
            ):
                segment.synced = True
                continue
            logger.warning("Rebuilding the indexes of %s", segment.file.path)
            trusted = segment.base_offset
        else:
            trusted = recovery_point
        for header in recover_segment(segment, trusted, config):
            if checked_from is None:
                checked_from = header.base_offset
            if header.partition_leader_epoch >= 0 and (
                epochs.latest is None or header.partition_leader_epoch > epochs.latest
            ):
                epochs.assign(header.partition_leader_epoch, header.base_offset)
        if checked_from is None:
            checked_from = segment.base_offset
        if segment.size_bytes < size_before and number >= first_unchecked:
            for behind in found[number + 1 :]:
                logger.warning("Removing %s: it lies behind damage", behind.file.path)
                _remove(behind)
            break
    log_end_offset = segments[-1].reload_max_timestamp() if segments else log_start_offset
    if segments and log_end_offset < log_start_offset:
        logger.warning("Removing %s: it ends at %d, below the log start offset", directory, log_end_offset)
        for segment in segments:
            _remove(segment)
        segments = []
        epochs.clear()
        log_end_offset = log_start_offset
    if not segments:
        segments = [Segment.create(directory, log_start_offset, config, now_ms=now_ms)]
    segments[-1].synced = False
    segments[-1].make_active(config)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if not epochs_known:
        epochs = _epochs_from_batches(segments)
    before = epochs.entries
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    if not epochs_known or epochs.entries != before or checked_from is not None:
        write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, epochs.entries, sync=False)
    _remove_stray_snapshots(directory, segments, log_end_offset)
    producers = load_producers(
        directory,
        segments,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        replay_from=log_end_offset if checked_from is None else checked_from,
    )
    producers.remove_expired(now_ms, config.producer_id_expiration_ms)
    return LoadedLog(
        segments=tuple(segments),
        epochs=epochs,
        producers=producers,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset
        if clean and checked_from is None
        else min(recovery_point, log_end_offset),
    )


def _open_segments(directory: Path, now_ms: TimestampMs) -> list[Segment]:
    """Open the segments, removing the files that a stopped deletion or cleaning left."""
    base_offsets = []
    indexes = []
    for path in sorted(directory.iterdir()):
        name = path.name
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")):
            path.unlink()
        elif offset_of(name) is not None and name.endswith(SEGMENT_SUFFIXES):
            if name.endswith(LOG_SUFFIX):
                base_offsets.append(int(name.partition(".")[0]))
            else:
                indexes.append(path)
    for path in indexes:
        if offset_of(path.name) not in base_offsets:
            logger.warning("Removing %s: there is no log to it", path)
            path.unlink()
    segments = []
    for base_offset in base_offsets:
        file = LogFile.open(offset_file(directory, base_offset, LOG_SUFFIX))
        segments.append(Segment(directory, base_offset, file, file.size_bytes(), created_ms=now_ms))
    return segments


def _end_is_damaged(segment: Segment) -> bool:
    try:
        segment.reload_max_timestamp()
    except CorruptBatchError as error:
        logger.warning("%s is damaged in spite of a clean stop: %s", segment.file.path, error)
        return True
    return False


def _read_epochs(directory: Path) -> tuple[LeaderEpochs, bool]:
    """Return the checkpointed epochs, and whether there is such a checkpoint."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        return LeaderEpochs(read_leader_epochs(path)), path.exists()
    except CorruptCheckpointError as error:
        logger.warning("Rebuilding the leader epochs from the log: %s", error)
        return LeaderEpochs(), False


def _epochs_from_batches(segments: list[Segment]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for segment in segments:
        for _, header in walk_headers(segment.file, 0, segment.size_bytes):
            if header.partition_leader_epoch >= 0:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
    return epochs


def _remove(segment: Segment) -> None:
    segment.release()
    for path in segment.paths():
        path.unlink()


def _remove_stray_snapshots(directory: Path, segments: list[Segment], log_end_offset: Offset) -> None:
    """Keep the snapshots at the segments' base offsets and the newest one, none above the log's end."""
    snapshots = sorted(
        path
        for path in directory.iterdir()
        if path.name.endswith(PRODUCER_SNAPSHOT_SUFFIX) and offset_of(path.name) is not None
    )
    base_offsets = {segment.base_offset for segment in segments}
    sound = [path for path in snapshots if int(path.name.partition(".")[0]) <= log_end_offset]
    for path in snapshots:
        offset = int(path.name.partition(".")[0])
        if offset > log_end_offset or (offset not in base_offsets and path != sound[-1]):
            path.unlink()
