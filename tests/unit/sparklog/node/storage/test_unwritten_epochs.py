"""Leader epochs whose file the system would not write: descriptors run out, and are there again."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparklog.node.storage.files import LEADER_EPOCH_CHECKPOINT
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import STAMP, STAMP_BYTES, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.sparklog.node.storage.batches import START_MS


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log.open(tmp_path / "t-0", LogConfig(), now_ms=START_MS)


@contextmanager
def without_descriptors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse to open the file of leader epochs."""
    real = os.open

    def fails(path: Any, *arguments: Any) -> int:
        if LEADER_EPOCH_CHECKPOINT in str(path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return real(path, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fails)
        yield


def sent(sequence: int, producer_id: int = 7) -> bytes:
    records = [SimpleRecord(None, b"v", (), START_MS)]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def lead(log: Log, records: bytes, leader_epoch: int) -> None:
    log.append_as_leader(records, read_header(records), leader_epoch, START_MS)


def follow(log: Log, records: bytes, leader_epoch: int) -> None:
    stamp = STAMP.pack(log.log_end_offset, read_header(records).batch_length, leader_epoch)
    log.append_as_follower(stamp + records[STAMP_BYTES:], START_MS)


@pytest.mark.parametrize("append", [lead, follow])
def test_epoch_that_was_not_written_is_written_with_the_next_append(
    log: Log, monkeypatch: pytest.MonkeyPatch, append: Any
) -> None:
    """After a kill recovery cut the record that the file knew nothing of, acknowledged as it was."""
    append(log, sent(0), 1)
    with without_descriptors(monkeypatch), pytest.raises(KafkaError, match="Too many open files"):
        append(log, sent(1), 2)
    assert log.log_end_offset == 1
    append(log, sent(1), 2)
    log.close(clean=False)
    again = Log.open(log.directory, LogConfig(), now_ms=START_MS, stop=PreviousStop.KILLED)
    assert (again.log_end_offset, again.missing) == (2, None)
    assert again.epochs.entries == ((1, 0), (2, 1))
    again.close(clean=False)


def test_log_whose_truncation_stopped_before_its_producers_are_known_is_used_no_more(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It remembered batches that were cut off: their retries would be acknowledged, and lost."""
    lead(log, sent(0), 1)
    lead(log, sent(0, producer_id=8), 2)
    with without_descriptors(monkeypatch), pytest.raises(KafkaError, match="Too many open files"):
        log.truncate_to(1)
    assert (log.log_end_offset, log.is_torn, log.is_intact) == (1, True, False)
    log.close(clean=False)
