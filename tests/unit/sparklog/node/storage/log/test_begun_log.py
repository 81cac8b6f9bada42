"""Logs without files: what they answer, how their files appear, and what a crash leaves of that."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sparklog.node.storage.checkpoints import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offsets,
    read_topic_id,
    write_offsets,
)
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.files import is_transient
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.leader_epochs import EpochEntry
from sparklog.node.storage.results import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import TopicPartition
from tests.unit.sparklog.node.storage.batches import START_MS, make_batch, read_all

CONFIG = LogConfig(file_delete_delay_ms=1000)
TOPIC_ID = UUID(int=7)
OTHER_ID = UUID(int=8)
PARTITION = TopicPartition("t", 0)
CALLS = ("mkdir", "open", "replace", "fsync", "pwritev")
"""The calls of the system by which a first record comes to the disk."""


class KilledError(BaseException):
    """The end of the process, between two calls of the system."""


@contextmanager
def killed_at(number: int) -> Iterator[list[str]]:
    """End the process at the call with that number, instead of it; yields the names of the calls."""
    made: list[str] = []
    originals = {name: getattr(os, name) for name in CALLS}

    def watched(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if len(made) >= number:
                raise KilledError
            made.append(name)
            return originals[name](*arguments, **named)

        return call

    for name in CALLS:
        setattr(os, name, watched(name))
    try:
        yield made
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


@contextmanager
def refused(suffix: str, error_number: int) -> Iterator[None]:
    """Let the system open no file with that end."""
    original = os.open

    def call(path: Any, *arguments: Any, **named: Any) -> int:
        if str(path).endswith(suffix):
            raise OSError(error_number, os.strerror(error_number), str(path))
        return original(path, *arguments, **named)

    os.open = call
    try:
        yield
    finally:
        os.open = original


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[LogDirectory]:
    opened = LogDirectory.open(tmp_path)
    yield opened
    opened.close()


def begin(directory: LogDirectory, topic_id: UUID = TOPIC_ID) -> Log:
    return directory.begin_log(PARTITION, topic_id, CONFIG, START_MS)


def lead(log: Log, count: int = 2) -> None:
    batch = make_batch(count)
    log.append_as_leader(batch, read_header(batch), 3, START_MS)


def follow(log: Log) -> None:
    log.append_as_follower(make_batch(2, leader_epoch=3), START_MS)


def names_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.name != ".lock")


def test_log_without_records_answers_everything_without_a_directory(directory: LogDirectory) -> None:
    """Ten thousand partitions that no producer has found yet cost the disk nothing."""
    log = begin(directory)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 0, 0)
    assert (log.is_new, log.has_files, log.is_intact, log.has_rolled) == (False, False, True, False)
    assert log.read(0, max_bytes=100, up_to_offset=0).region is None
    with pytest.raises(KafkaError, match="outside"):
        log.read(1, max_bytes=100, up_to_offset=0)
    found = [log.offset_for_timestamp(each, 0) for each in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP)]
    assert [None if each is None else each.offset for each in found] == [0, 0]
    assert [log.offset_for_timestamp(each, 0) for each in (START_MS, MAX_TIMESTAMP)] == [None, None]
    assert (log.end_offset_for(5), log.aborted_transactions(0, 1)) == (None, [])
    assert log.truncate_to(0) is False
    assert log.advance_log_start_offset(0) is False
    assert log.delete_old_segments(START_MS + 10**12, 0) == 0
    assert (log.delete_files_due(START_MS), list(log.remove_expired_producers(START_MS))) == (0, [])
    log.flush_rolled()
    log.flush()
    log.close()
    assert names_in(directory.path) == []


@pytest.mark.parametrize("append", [lead, follow])
def test_first_record_brings_the_files_of_a_log(
    directory: LogDirectory, append: Callable[[Log], None]
) -> None:
    """From then on the log is as if it had been created with its topic."""
    log = begin(directory)
    append(log)
    names = ["00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata"]
    assert names_in(log.directory) == names
    assert (read_topic_id(log.directory / "partition.metadata"), log.is_new) == (TOPIC_ID, False)
    append(log) if append is lead else None
    content = read_all(log)
    log.close()
    directory.write_clean_shutdown(None)
    loaded = directory.load_all(lambda _: CONFIG, START_MS)[PARTITION]
    assert (read_all(loaded), loaded.topic_id, loaded.epochs.entries) == (
        content,
        TOPIC_ID,
        (EpochEntry(3, 0),),
    )
    loaded.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.truncate_fully_and_start_at(5),
        lambda log: log.skip_to(5, START_MS),
        lambda log: log.adopt(
            leader_epochs=[(3, 0)], producers=None, log_start_offset=5, end_offset=5, now_ms=START_MS
        ),
    ],
)
def test_log_that_begins_elsewhere_has_files_that_say_so(
    directory: LogDirectory, change: Callable[[Log], None]
) -> None:
    """An absent directory means offset 0, and a follower's log may begin above without a record."""
    log = begin(directory)
    change(log)
    log.flush()
    log.close()
    loaded = directory.load_all(lambda _: CONFIG, START_MS)[PARTITION]
    assert (loaded.log_end_offset, loaded.topic_id) == (5, TOPIC_ID)
    loaded.close()


@pytest.mark.parametrize("append", [lead, follow])
def test_process_that_is_killed_at_any_call_of_the_first_append_leaves_an_empty_log_or_the_record(
    tmp_path: Path, append: Callable[[Log], None]
) -> None:
    """The files that are left belong to its topic and to no other, and the record can be appended again."""
    number, is_over = 0, False
    left: list[tuple[int, UUID | None] | None] = []
    while not is_over:
        path = tmp_path / str(number)
        directory = LogDirectory.open(path)
        log = begin(directory)
        with killed_at(number) as made:
            try:
                append(log)
                is_over = True
            except KilledError:
                pass
        log.close(clean=False)
        directory.close()
        directory = LogDirectory.open(path)
        loaded = directory.load_all(lambda _: CONFIG, START_MS)
        assert not directory.unreadable, made
        found = loaded.get(PARTITION)
        left.append(None if found is None else (found.log_end_offset, found.topic_id))
        again = begin(directory) if found is None else found
        if again.topic_id is None:
            again.assign_topic_id(TOPIC_ID)
        if not again.log_end_offset:
            append(again)
        assert (again.log_end_offset, again.topic_id, again.missing) == (2, TOPIC_ID, None)
        again.close()
        directory.close()
        number += 1
    assert left[0] is None
    assert set(left[1:-1]) == {(0, None), (0, TOPIC_ID)}
    assert left[-1] == (2, TOPIC_ID)


def test_record_comes_after_the_sync_of_all_that_names_its_log(directory: LogDirectory) -> None:
    """A power cut takes directories that were not fsynced, and the record in them was acknowledged."""
    log = begin(directory)
    with killed_at(1_000) as made:
        lead(log)
    topic_id = leader_epochs = ["open", "replace"]
    assert made == ["mkdir", *topic_id, "open", *leader_epochs, *["open", "fsync"] * 3, "pwritev"]
    log.close()


def test_directory_comes_when_no_checkpoint_of_a_former_log_is_left(directory: LogDirectory) -> None:
    """A broker killed in between would take the offsets of the deleted topic for those of this one."""
    names = (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
    for name in names:
        write_offsets(directory.path / name, {PARTITION: 500})
    log = begin(directory, OTHER_ID)
    assert [read_offsets(directory.path / name) for name in names] == [{PARTITION: 500}] * 2
    mkdir = os.mkdir
    said: list[object] = []

    def watched(*arguments: Any, **named: Any) -> None:
        said.extend(read_offsets(directory.path / name) for name in names)
        mkdir(*arguments, **named)

    os.mkdir = watched
    try:
        lead(log)
    finally:
        os.mkdir = mkdir
    assert said == [{}, {}]
    log.close()


def test_files_that_the_system_refuses_half_way_come_with_the_next_record(directory: LogDirectory) -> None:
    """Descriptors may be lacking for a while; the directory is there then, with its topic's id."""
    log = begin(directory)
    for suffix in ("partition.metadata.tmp", ".log"):
        with refused(suffix, errno.EMFILE), pytest.raises(KafkaError, match="Too many open files"):
            lead(log)
        assert (log.has_files, log.is_intact, log.log_end_offset) == (False, True, 0)
    lead(log)
    assert log.log_end_offset == 2
    log.close()


def test_files_are_not_created_in_the_directory_of_another_topic(directory: LogDirectory) -> None:
    """Its records would be those of this topic after the next start."""
    former = begin(directory)
    lead(former)
    former.close()
    for topic_id, reason in ((OTHER_ID, "belongs to topic id"), (TOPIC_ID, "File exists")):
        log = begin(directory, topic_id)
        with pytest.raises(KafkaError, match=reason) as caught:
            lead(log)
        assert caught.value.error_code is ErrorCode.kafka_storage_error
        assert not is_transient(caught.value)
    loaded = directory.load_all(lambda _: CONFIG, START_MS)[PARTITION]
    assert (loaded.log_end_offset, loaded.topic_id) == (2, TOPIC_ID)
    loaded.close()


def test_removed_data_directory_is_not_created_again_for_a_log(directory: LogDirectory) -> None:
    """It would be empty, without identity or lock: that disk has failed, and the broker has to notice."""
    log = begin(directory)
    shutil.rmtree(directory.path)
    with pytest.raises(KafkaError, match="No such file") as caught:
        lead(log)
    assert not log.is_intact
    assert directory.is_failed_by(caught.value)
    directory.path.mkdir()


def test_deleted_log_without_files_leaves_nothing_and_its_name_is_free(directory: LogDirectory) -> None:
    """A topic that is made again gets the directory with its own first record."""
    directory.delete_log(begin(directory), START_MS)
    assert names_in(directory.path) == []
    assert not directory.has_directories_due(START_MS + 1000)
    again = begin(directory, OTHER_ID)
    lead(again)
    assert read_topic_id(again.directory / "partition.metadata") == OTHER_ID
    again.close()


def test_log_that_is_deleted_while_its_files_are_created_takes_them_along(directory: LogDirectory) -> None:
    """A thread creates them for the first record: the next topic of the name found the directory taken."""
    creating, goes_on = threading.Event(), threading.Event()

    def before_files() -> None:
        creating.set()
        assert goes_on.wait(10)

    log = Log.begin(
        directory.path / "t-0",
        CONFIG,
        TOPIC_ID,
        stop=directory.previous_stop,
        now_ms=START_MS,
        before_files=before_files,
    )
    with ThreadPoolExecutor(2) as threads:
        created = threads.submit(log.sync_identity)
        assert creating.wait(10)
        deleted = threads.submit(directory.delete_log, log, START_MS)
        goes_on.set()
        created.result(10)
        deleted.result(10)
    (left,) = names_in(directory.path)
    assert left.endswith("-delete")
    lead(begin(directory, OTHER_ID))


def test_log_that_is_copied_elsewhere_gets_files_before_its_copy(tmp_path: Path) -> None:
    """After a crash the copy alone would count as the log, and one without its last records."""
    here, there = LogDirectory.open(tmp_path / "here"), LogDirectory.open(tmp_path / "there")
    log = begin(here)
    future = there.create_future(log, START_MS)
    assert (log.has_files, log.identity_unsynced) == (True, False)
    lead(future)
    future.close()
    log.close()
    here.close()
    there.close()


def test_closed_log_without_files_gets_none_from_a_late_thread(directory: LogDirectory) -> None:
    """A broker that stops does not wait for its threads, and the next one may have begun the log already."""
    log = begin(directory)
    log.close()
    for late in (log.sync_identity, log.create_files):
        with pytest.raises(KafkaError, match="the log is closed"):
            late()
    assert names_in(directory.path) == []
