"""Log and snapshots together are the metadata: what happens to one of the two, the other makes up for."""

import asyncio
import logging
from pathlib import Path

import pytest

from sparklog.node.config import SnapshotLimits
from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata_log.machine.snapshot_batches import (
    DamagedSnapshotError,
    MetadataSnapshot,
    encode_snapshot,
)
from sparklog.node.metadata_log.snapshot_files import PartialSnapshot, snapshot_path
from sparklog.node.metadata_log.snapshot_store import SnapshotStore, read_snapshot
from sparklog.node.metadata_log.snapshot_taker import SnapshotTaker
from sparklog.node.storage.log.log import Log
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import SnapshotId
from tests.unit.sparklog.node.metadata_log.metadata_logs import (
    START_MS,
    append_topics,
    open_log,
    open_with_snapshots,
    replayed,
)

ONE_SNAPSHOT = SnapshotLimits(
    max_record_bytes=500, max_interval_ms=None, retention_bytes=0, retention_ms=None
)
"""Let go whatever may go."""


def store_of(log: Log) -> SnapshotStore:
    return SnapshotStore.open(log.directory, lambda _: log)[0]


def damage(path: Path, position: int = 100) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def snapshotted(parent: Path, *, snapshots: int = 2, topics_each: int = 3) -> Log:
    """Return a log in which a snapshot was written after every so many topics; two more follow the last."""
    log = open_log(parent)
    store = store_of(log)
    for number in range(snapshots):
        append_topics(log, range(number * topics_each, (number + 1) * topics_each), leader_epoch=1 + number)
        store.write(replayed(log))
    append_topics(log, range(1000, 1002), leader_epoch=snapshots)
    return log


def reopened(log: Log) -> tuple[Log, SnapshotStore, MetadataSnapshot | None]:
    log.close()
    return open_with_snapshots(log.directory.parent)


def test_snapshot_and_the_log_behind_it_give_what_the_whole_log_gives(tmp_path: Path) -> None:
    """A restart from a snapshot and a replay from the first record must come out the same."""
    log = snapshotted(tmp_path)
    whole = replayed(log)
    log, store, newest = reopened(log)
    assert newest is not None
    assert store.ids == (SnapshotId(9, 1), SnapshotId(18, 2))
    assert newest.snapshot_id == store.newest == SnapshotId(18, 2)
    assert replayed(log, newest) == whole


def test_snapshot_of_an_offset_that_has_one_is_not_written_again(tmp_path: Path) -> None:
    """It would say the same."""
    log = snapshotted(tmp_path, snapshots=1)
    store = store_of(log)
    path = snapshot_path(log.directory, SnapshotId(9, 1))
    before = path.stat()
    store.write(read_snapshot(path, SnapshotId(9, 1)))
    assert path.stat() == before


def test_damaged_snapshot_is_set_aside_and_the_one_before_it_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One bad block must not cost the cluster its metadata, nor go unnoticed."""
    log = snapshotted(tmp_path)
    whole = replayed(log)
    damage(snapshot_path(log.directory, SnapshotId(18, 2)))
    with caplog.at_level(logging.ERROR):
        log, store, newest = reopened(log)
    assert store.ids == (SnapshotId(9, 1),)
    assert newest is not None
    assert replayed(log, newest) == whole
    assert "00000000000000000018-0000000002.checkpoint cannot be used" in caplog.text
    assert (log.directory / "00000000000000000018-0000000002.checkpoint.damaged").exists()


@pytest.mark.parametrize("kept_bytes", [0, 30, 61, -1])
def test_snapshot_cut_anywhere_is_set_aside(tmp_path: Path, kept_bytes: int) -> None:
    """A file system may come back with a shorter file than the name promised."""
    log = snapshotted(tmp_path)
    path = snapshot_path(log.directory, SnapshotId(18, 2))
    path.write_bytes(path.read_bytes()[:kept_bytes])
    log, store, _ = reopened(log)
    assert store.ids == (SnapshotId(9, 1),)
    assert replayed(log).image.topics.by_name


def test_log_without_snapshots_begins_at_the_beginning(tmp_path: Path) -> None:
    """A young cluster has none."""
    log = open_log(tmp_path)
    append_topics(log, range(2))
    log, store, newest = reopened(log)
    assert (newest, store.oldest, store.newest, store.ids) == (None, None, None, ())
    assert log.log_start_offset == 0


def test_log_that_begins_above_its_only_readable_snapshot_is_refused(tmp_path: Path) -> None:
    """Metadata with a hole in it is none; nobody may guess what was there."""
    log = snapshotted(tmp_path)
    store = store_of(log)
    store.remove(store.replace_log(SnapshotId(18, 2)))
    append_topics(log, range(1000, 1002), leader_epoch=2)
    damage(snapshot_path(log.directory, SnapshotId(18, 2)))
    with pytest.raises(KafkaError, match="begins at offset 18") as refused:
        reopened(log)
    assert refused.value.error_code is ErrorCode.kafka_storage_error


def test_old_snapshots_go_with_the_segments_below_the_next_one(tmp_path: Path) -> None:
    """The log begins at a snapshot, and every one that stays can be continued from the log."""
    log = open_log(tmp_path, segment_bytes=1000)
    store = store_of(log)
    for number in range(3):
        append_topics(log, range(number * 10, number * 10 + 10))
        store.write(replayed(log))
    append_topics(log, range(100, 103))
    whole = replayed(log)
    removed = store.forget_old(ONE_SNAPSHOT, START_MS)
    assert removed == (SnapshotId(30, 1), SnapshotId(60, 1))
    store.remove(removed)
    assert log.log_start_offset == 90
    assert 0 < log.first_segment_base_offset <= 90
    log, store, newest = reopened(log)
    assert store.ids == (SnapshotId(90, 1),)
    assert log.log_start_offset == 90
    assert newest is not None
    assert replayed(log, newest) == whole


def test_crash_between_letting_go_and_deleting_is_finished_at_the_next_start(tmp_path: Path) -> None:
    """Snapshots that nobody needs must not pile up."""
    log = open_log(tmp_path, segment_bytes=1000)
    store = store_of(log)
    for number in range(2):
        append_topics(log, range(number * 10, number * 10 + 10))
        store.write(replayed(log))
    assert store.forget_old(ONE_SNAPSHOT, START_MS) == (SnapshotId(30, 1),)
    log, store, _ = reopened(log)
    assert store.ids == (SnapshotId(60, 1),)
    assert not snapshot_path(log.directory, SnapshotId(30, 1)).exists()


def downloaded(log: Log, snapshot: MetadataSnapshot) -> SnapshotStore:
    """Return the store beside `log` after a download of `snapshot`, before the log is replaced."""
    store = store_of(log)
    with PartialSnapshot(log.directory, snapshot.snapshot_id) as partial:
        for batch in encode_snapshot(snapshot):
            partial.append(batch)
        assert store.downloaded(partial) == snapshot
    return store


def test_downloaded_snapshot_replaces_the_log(tmp_path: Path) -> None:
    """The log goes on where the snapshot ends, in the leader epoch of the record before."""
    leader = snapshotted(tmp_path / "leader")
    snapshot = replayed(leader)
    log = snapshotted(tmp_path / "broker", snapshots=1)
    store = downloaded(log, snapshot)
    removed = store.replace_log(snapshot.snapshot_id)
    assert removed == (SnapshotId(9, 1),)
    store.remove(removed)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.latest) == (24, 24, 2)
    append_topics(log, range(2000, 2002), leader_epoch=3)
    log, store, newest = reopened(log)
    assert newest == snapshot
    assert (log.log_start_offset, log.log_end_offset) == (24, 30)
    assert len(replayed(log, newest).image.topics.by_name) == len(snapshot.image.topics.by_name) + 2


@pytest.mark.parametrize("clean", [True, False])
def test_empty_log_behind_a_snapshot_knows_its_epoch_after_a_restart(tmp_path: Path, clean: bool) -> None:
    """Who votes compares the epoch of the last record, which is in the snapshot."""
    leader = snapshotted(tmp_path / "leader")
    snapshot = replayed(leader)
    log = open_log(tmp_path / "broker")
    store = downloaded(log, snapshot)
    store.replace_log(snapshot.snapshot_id)
    log.close(clean=clean)
    log, _, _ = open_with_snapshots(tmp_path / "broker")
    assert (log.log_start_offset, log.log_end_offset, log.epochs.latest) == (24, 24, 2)


def test_truncation_to_the_snapshot_leaves_its_epoch(tmp_path: Path) -> None:
    """All that followed the snapshot was never committed, and another leader's records come."""
    log = open_log(tmp_path)
    store = store_of(log)
    append_topics(log, range(3))
    store.write(replayed(log))
    store.replace_log(SnapshotId(9, 1))
    append_topics(log, range(3, 5), leader_epoch=2)
    log.truncate_to(9)
    store.mark_start()
    assert (log.log_end_offset, log.epochs.latest) == (9, 1)


@pytest.mark.parametrize("leader_epoch", [1, 3], ids=["shorter", "older"])
def test_crash_between_a_download_and_the_replacement_is_finished_at_the_next_start(
    tmp_path: Path, leader_epoch: int
) -> None:
    """The log is behind the snapshot, or has records that were never committed."""
    leader = snapshotted(tmp_path / "leader", topics_each=2)
    snapshot = replayed(leader)
    snapshot = snapshot._replace(image=replay_records(snapshot.image, [], 17, leader_epoch)[0])
    log = open_log(tmp_path / "broker")
    append_topics(log, range(2 if leader_epoch == 1 else 20))
    downloaded(log, snapshot)
    log, store, newest = reopened(log)
    assert newest == snapshot
    assert store.ids == (SnapshotId(18, leader_epoch),)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.latest) == (18, 18, leader_epoch)


def test_download_of_a_damaged_snapshot_changes_nothing(tmp_path: Path) -> None:
    """What came over the wire is checked before it gets its name."""
    log = snapshotted(tmp_path, snapshots=1)
    store = store_of(log)
    with (
        pytest.raises(DamagedSnapshotError),
        PartialSnapshot(log.directory, SnapshotId(500, 3)) as partial,
    ):
        partial.append(b"x" * 100)
        store.downloaded(partial)
    assert store.ids == (SnapshotId(9, 1),)
    assert not list(log.directory.glob("*.part"))


def test_region_of_a_snapshot_outlives_its_removal(tmp_path: Path) -> None:
    """Somebody may still be downloading it."""
    log = snapshotted(tmp_path)
    store = store_of(log)
    content = snapshot_path(log.directory, SnapshotId(9, 1)).read_bytes()
    region = store.region(SnapshotId(9, 1))
    store.remove([SnapshotId(9, 1)])
    assert region is not None
    assert region.read() == content
    assert store.region(SnapshotId(9, 1)) is None
    assert store.region(SnapshotId(9, 2)) is None


def test_snapshots_are_taken_as_the_log_grows_and_old_ones_go(tmp_path: Path) -> None:
    """What is on the disk stays bounded, and a restart finds the newest."""

    async def grow() -> None:
        taker = SnapshotTaker(store, log, ONE_SNAPSHOT, lambda: START_MS)
        before = log.size_bytes
        for number in range(30):
            append_topics(log, [number])
            taker.applied(replayed(log, None if store.newest is None else newest()), log.size_bytes - before)
            before = log.size_bytes
            await taker.idle()

    def newest() -> MetadataSnapshot:
        assert store.newest is not None
        return read_snapshot(snapshot_path(log.directory, store.newest), store.newest)

    log = open_log(tmp_path, segment_bytes=1000)
    store = store_of(log)
    asyncio.run(grow())
    assert len(store.ids) == 1
    assert store.newest is not None
    assert log.log_start_offset == store.newest.end_offset > 60
    assert len(list(log.directory.glob("*.checkpoint"))) == 1
    assert len(replayed(log, newest()).image.topics.by_name) == 30


def test_snapshot_that_the_disk_refuses_is_missed_by_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has it all; the next snapshot comes when it is due."""

    async def take() -> None:
        taker = SnapshotTaker(store, log, ONE_SNAPSHOT, lambda: START_MS)
        taker.applied(replayed(log), 500)
        await taker.idle()
        blocking.rmdir()
        taker.applied(replayed(log), 499)
        await taker.idle()
        assert store.ids == ()
        taker.applied(replayed(log), 1)
        await taker.idle()

    log = open_log(tmp_path)
    store = store_of(log)
    append_topics(log, range(3))
    blocking = log.directory / f"{SnapshotId(9, 1)}.checkpoint.part"
    blocking.mkdir()
    asyncio.run(take())
    assert "Could not write the snapshot 00000000000000000009-0000000001" in caplog.text
    assert store.ids == (SnapshotId(9, 1),)


def test_snapshot_below_the_log_is_not_written(tmp_path: Path) -> None:
    """A snapshot was downloaded while one of the old log was being put together."""
    log = snapshotted(tmp_path)
    old = replayed(log)._replace(image=replay_records(EMPTY_IMAGE, [], 4, 1)[0])
    store = store_of(log)
    store.replace_log(SnapshotId(18, 2))
    store.write(old)
    assert store.ids == (SnapshotId(18, 2),)


def test_log_that_was_cut_at_a_snapshot_starts_there_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its active segment has more, but the leader epochs of that were forgotten."""
    log = snapshotted(tmp_path)
    store = store_of(log)
    whole = replayed(log)
    store.remove(store.forget_old(ONE_SNAPSHOT, START_MS))
    assert (log.first_segment_base_offset, log.log_start_offset) == (0, 18)
    log, _, newest = reopened(log)
    assert (log.first_segment_base_offset, log.log_start_offset) == (0, 18)
    assert newest is not None
    assert replayed(log, newest) == whole
    assert caplog.text == ""


def test_log_that_was_cut_at_a_snapshot_goes_on_without_it_while_it_has_what_was_before(
    tmp_path: Path,
) -> None:
    """The only snapshot is damaged, and nothing is lost by that yet."""
    log = snapshotted(tmp_path)
    store = store_of(log)
    whole = replayed(log)
    store.remove(store.forget_old(ONE_SNAPSHOT, START_MS))
    damage(snapshot_path(log.directory, SnapshotId(18, 2)))
    log, store, newest = reopened(log)
    assert (newest, store.ids, log.log_start_offset) == (None, (), 0)
    assert replayed(log) == whole
    assert [entry.start_offset for entry in log.epochs.entries] == [0, 9]
