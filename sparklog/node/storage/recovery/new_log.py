"""The log of a new partition, as recovery would find it in its empty directory."""

from pathlib import Path

from sparklog.node.storage.file_region import LogFile
from sparklog.node.storage.files import LOG_SUFFIX, offset_file
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.leader_epochs import LeaderEpochs
from sparklog.node.storage.machine.producer_states import ProducerStates
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.recovery.recovery import LoadedLog
from sparklog.node.storage.segments.segment import Segment
from sparklog.protocol.types import Offset, TimestampMs


def new_log(
    directory: Path,
    config: LogConfig,
    *,
    log_start_offset: Offset | None,
    stop: PreviousStop,
    now_ms: TimestampMs,
    has_files: bool = True,
) -> LoadedLog:
    """Begin a log in a directory that was empty, as `load_log` would.

    Nothing is looked for there: a broker makes thousands of logs at a time. `log_start_offset` is None unless
    it is a copy of a log that starts higher. Without `has_files` nothing is created.

    Raises:
        OSError: the file of its records cannot be created.
    """
    start = log_start_offset or 0
    path = offset_file(directory, start, LOG_SUFFIX)
    file = LogFile.open(path, create=True) if has_files else LogFile.absent(path)
    segment = Segment(directory, start, file, 0, created_ms=now_ms)
    segment.make_active(config)
    return LoadedLog(
        segments=(segment,),
        epochs=LeaderEpochs(),
        producers=ProducerStates(),
        log_start_offset=start,
        log_start_is_guessed=config.remote_storage_enable
        and (stop is PreviousStop.UNKNOWN or (stop is PreviousStop.KILLED and log_start_offset is None)),
        log_end_offset=start,
        recovery_point=start if stop is PreviousStop.CLEAN else 0,
        may_have_gaps=config.compacts,
        checked_bytes=0,
        missing=None,
    )
