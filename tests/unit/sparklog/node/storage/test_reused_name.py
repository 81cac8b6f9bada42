"""A log is given up while a thread works on it, and another one is made in a directory of the same name."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, current_thread
from typing import Any

import pytest

from sparklog.node.storage.files import offset_file
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.producers import unwritten_snapshots
from sparklog.node.storage.segments import segment_list
from sparklog.protocol.records.batch import read_header
from tests.cluster import wait_for
from tests.unit.sparklog.node.storage.batches import START_MS, make_batch

CONFIG = LogConfig(segment_bytes=400, file_delete_delay_ms=0)
TIMEOUT_S = 20
WORKER = "worker"
RENAMING = "renaming"


@contextmanager
def held(name: str, suffix: str) -> Iterator[tuple[Event, Event]]:
    """Hold the first call of one of os's functions on such a file in a worker's thread.

    Yields what is set when that is reached, and what lets it go on.
    """
    real, reached, go_on = getattr(os, name), Event(), Event()

    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        if current_thread().name.startswith(WORKER) and str(path).endswith(suffix) and not reached.is_set():
            reached.set()
            assert go_on.wait(TIMEOUT_S)
        return real(path, *arguments, **options)

    setattr(os, name, call)
    try:
        yield reached, go_on
    finally:
        setattr(os, name, real)
        go_on.set()


def filled(directory: Path) -> Log:
    """Return a new log of a few segments."""
    log = Log.open(directory, CONFIG, now_ms=START_MS)
    for number in range(12):
        batch = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number)
        log.append_as_leader(batch, read_header(batch), 0, START_MS)
    assert len(log.segments.all) > 3
    return log


class ToldLock:
    """A lock that tells when the thread that renames has to wait for it."""

    def __init__(self, waits: Event) -> None:
        self._lock = Lock()
        self._waits = waits

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            if current_thread().name.startswith(RENAMING):
                self._waits.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set when renaming a log has to wait for what another thread does with its files."""
    waits = Event()
    for module in (segment_list, unwritten_snapshots):
        monkeypatch.setattr(module, "Lock", lambda: ToldLock(waits))
    return waits


def given_up_during(log: Log, waits: Event, work: Callable[[], object], name: str, suffix: str) -> None:
    """Give the log up while `work` is held in a thread, fill another of its name, and let the work go on."""
    with (
        ThreadPoolExecutor(1, WORKER) as worker,
        ThreadPoolExecutor(1, RENAMING) as other,
        held(name, suffix) as (reached, go_on),
    ):
        working = worker.submit(work)
        assert reached.wait(TIMEOUT_S)
        directory = log.directory
        renaming = other.submit(log.rename_with_suffix, "-delete")
        wait_for(lambda: waits.is_set() or renaming.done(), "the log is renamed, or waits for the work")
        if waits.is_set():
            # Until the work has gone on: then that met its own files only.
            go_on.set()
        renaming.result(TIMEOUT_S)
        fill_again(directory)
        before = files(directory)
        go_on.set()
        working.result(TIMEOUT_S)
        assert files(directory) == before


def fill_again(directory: Path) -> None:
    """Make another log, which is in the middle of writing its snapshots."""
    log = filled(directory)
    for segment in log.segments.all:
        offset_file(directory, segment.base_offset, ".snapshot.tmp").write_bytes(b"of the new log")
    log.close(clean=False)


def files(directory: Path) -> dict[str, bytes]:
    """Return what lies in a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_producers_of_a_deleted_log_get_no_snapshot_in_a_new_one_of_its_name(
    tmp_path: Path, waits: Event
) -> None:
    """The new log would begin with sequences of producers that never wrote to it."""
    log = filled(tmp_path / "t-0")
    given_up_during(log, waits, log.flush_rolled, "open", ".snapshot.tmp")


def test_segments_dropped_from_a_deleted_log_are_not_renamed_in_a_new_one_of_its_name(
    tmp_path: Path, waits: Event
) -> None:
    """The new log's records would be unlinked."""
    log = filled(tmp_path / "t-0")
    log.advance_log_start_offset(log.log_end_offset)
    log.delete_old_segments(START_MS, log.log_end_offset)
    given_up_during(log, waits, lambda: log.delete_files_due(START_MS + 1), "rename", ".log")
