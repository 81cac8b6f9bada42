"""A task's reads of segments in a store: exact, in order, and over objects that go."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_changes import empty_manifest
from sparklog.node.remote_log.machine.manifest_encoding import encode_manifest
from sparklog.node.remote_log.machine.names import manifest_name
from sparklog.node.remote_log.object_store import StoredObject, StoreUnavailableError
from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.protocol.types import TopicPartition
from sparklog.user.dataframe.remote import store_thread
from sparklog.user.dataframe.remote.history import History, history_of
from sparklog.user.dataframe.remote.history_reads import HistoryReads
from sparklog.user.dataframe.remote.store_thread import close_stores
from tests.unit.sparklog.node.remote_log.segments.rows import PARTITION, TOPIC, TOPIC_ID, Record, write

WIDE = bytes(1_500_000)
PARTITION_OF_TOPIC = TopicPartition(TOPIC, PARTITION)


@pytest.fixture(autouse=True)
def stores_close() -> Iterator[None]:
    """Close the stores that this process has opened in place of Spark's workers."""
    yield
    close_stores()


class Tier:
    """The tier of one partition in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest: Manifest = empty_manifest(
            TOPIC, TOPIC_ID, PARTITION, start_offset=0, owner_epoch=1, leader_epoch=1
        )

    def write(self, name: str, offsets: Sequence[int], value: bytes = b"value") -> RemoteSegment:
        """Write a segment without naming it."""
        written = write(
            self.directory / name, [Record(each, key=name.encode(), value=value) for each in offsets]
        )
        return RemoteSegment(
            *(name, offsets[0], offsets[-1] + 1, len(offsets), written.size_bytes, written.raw_bytes),
            *(written.first_timestamp_ms, written.max_timestamp_ms, written.crc32c),
        )

    def name(self, *segments: RemoteSegment, end_offset: int | None = None) -> None:
        """Make a manifest that names these segments."""
        end = segments[-1].end_offset if end_offset is None else end_offset
        self.manifest = replace(self.manifest, segments=segments, end_offset=end)
        path = self.directory / manifest_name(TOPIC_ID, PARTITION)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_manifest(self.manifest))

    def history(self, start: int = 0, end: int = 2**62) -> History:
        found = history_of(self.manifest).within(start, end)
        assert found is not None
        return found

    def reads(self, history: History, pause: Callable[[float], None] = lambda pause_s: None) -> HistoryReads:
        location = StoreLocation(self.directory.as_uri())
        return HistoryReads(location, PARTITION_OF_TOPIC, TOPIC_ID, history, pause=pause)


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return Tier(tmp_path)


def offsets_of(reads: HistoryReads) -> list[int]:
    rows = reads.rows(["offset"], check_crcs=True)
    return [offset for each in rows for offset in each.columns.column("offset").to_pylist()]


@pytest.mark.parametrize(("start", "end"), [(0, 40), (3, 4), (7, 31), (9, 30), (12, 19), (39, 40)])
@pytest.mark.parametrize("value", [b"value", WIDE], ids=["one row group", "several"])
def test_rows_of_a_range_are_those_of_its_offsets(tier: Tier, start: int, end: int, value: bytes) -> None:
    """A range may begin and end inside a row group, and a segment's window, too."""
    first, second = tier.write("a", range(0, 20, 2), value), tier.write("b", range(15, 40), value)
    tier.name(first, replace(second, base_offset=20, end_offset=40), end_offset=40)
    expected = [*range(0, 20, 2), *range(20, 40)]
    reads = tier.reads(tier.history(start, end))
    assert offsets_of(reads) == [each for each in expected if start <= each < end]
    assert reads.position == end


def test_rows_without_a_column_are_counted_exactly(tier: Tier) -> None:
    """Topic and partition are known without a read, but not how many rows of a cut row group there are."""
    tier.name(tier.write("a", range(10)), tier.write("b", range(10, 30)))
    counts = [each.row_count for each in tier.reads(tier.history(3, 25)).rows([], check_crcs=True)]
    assert sum(counts) == 22


def test_merged_segments_are_read_on_from_the_new_object(tier: Tier) -> None:
    """Each record once: from where the task was, the manifest of now says what has the rest."""
    small = [tier.write(f"small-{number}", range(10 * number, 10 * number + 10)) for number in range(12)]
    tier.name(*small)
    reads = tier.reads(tier.history(4, 118))
    rows = reads.rows(["key", "offset"], check_crcs=True)
    found = next(rows).columns.to_pylist()
    tier.name(tier.write("merged", range(120)))
    for each in small:
        (tier.directory / each.name).unlink()
    found += [row for each in rows for row in each.columns.to_pylist()]
    assert [row["offset"] for row in found] == list(range(4, 118))
    assert found[-1]["key"] == b"merged"


def test_merge_behind_a_segment_that_ends_with_a_marker_is_followed(tier: Tier) -> None:
    """Markers are no rows: the task is at the end of the object that it has read, not at its last row."""
    first = replace(tier.write("a", range(8)), end_offset=10)
    tier.name(first, tier.write("b", range(10, 20)), tier.write("c", range(20, 30)))
    reads = tier.reads(tier.history())
    tier.name(first, tier.write("merged", range(10, 30)))
    for name in ("b", "c"):
        (tier.directory / name).unlink()
    assert offsets_of(reads) == [*range(8), *range(10, 30)]


@pytest.mark.parametrize("names_it", [True, False])
def test_read_of_an_object_that_cannot_be_had_ends_at_the_position_for_brokers(
    tier: Tier, names_it: bool
) -> None:
    """Without an end a task would read manifests for ever that name what is not there."""
    first, second = tier.write("a", range(10)), tier.write("b", range(10, 20))
    tier.name(first, second)
    reads = tier.reads(tier.history())
    (tier.directory / "b").unlink()
    if not names_it:
        tier.name(first)
    assert offsets_of(reads) == list(range(10))
    assert reads.position == 10


def test_read_of_a_damaged_object_ends_before_it(tier: Tier, caplog: pytest.LogCaptureFixture) -> None:
    """Brokers say whether that is the truth; the log says why they are asked."""
    tier.name(tier.write("a", range(10)), tier.write("b", range(10, 20)))
    reads = tier.reads(tier.history())
    damaged = tier.directory / "b"
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert offsets_of(reads) == list(range(10))
    assert reads.position == 10
    assert "read through brokers" in caplog.text


def test_read_goes_on_when_a_store_that_did_not_answer_does_again(tier: Tier) -> None:
    """The rest of a large range through brokers costs far more than a few seconds."""
    names = "abc"
    tier.name(*(tier.write(name, range(10 * number, 10 * number + 10)) for number, name in enumerate(names)))
    whole = {name: (tier.directory / name).read_bytes() for name in names}
    pauses_s: list[float] = []

    def pause(pause_s: float) -> None:
        """Complete one more object in every third pause."""
        pauses_s.append(pause_s)
        if len(pauses_s) % 3 == 0:
            name = names[len(pauses_s) // 3]
            (tier.directory / name).write_bytes(whole[name])

    reads = tier.reads(tier.history(), pause)
    for name in names[1:]:
        (tier.directory / name).write_bytes(whole[name][:-1])
    assert offsets_of(reads) == list(range(30))
    assert pauses_s == [1, 2, 4, 1, 2, 4]


def test_manifest_of_merged_segments_that_cannot_be_read_at_once_is_read_again(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failure of the store at this moment would send the rest of a range through brokers, too."""
    fails = True

    class Failing(DirectoryStore):
        async def get(self, name: str) -> StoredObject:
            if fails:
                raise StoreUnavailableError(f"{name}: 503")
            return await super().get(name)

    monkeypatch.setattr(store_thread, "open_store", lambda uri, options: Failing(tier.directory))
    pauses_s: list[float] = []

    def pause(pause_s: float) -> None:
        nonlocal fails
        pauses_s.append(pause_s)
        fails = len(pauses_s) < 2

    tier.name(tier.write("a", range(10)), tier.write("b", range(10, 20)))
    reads = tier.reads(tier.history(), pause)
    tier.name(tier.write("merged", range(20)))
    for name in "ab":
        (tier.directory / name).unlink()
    assert offsets_of(reads) == list(range(20))
    assert pauses_s == [1, 2]


def test_read_without_a_manifest_ends_at_the_position_for_brokers(tier: Tier) -> None:
    """The topic was deleted: more attempts find nothing."""
    tier.name(tier.write("a", range(10)))
    reads = tier.reads(tier.history())
    (tier.directory / "a").unlink()
    (tier.directory / manifest_name(TOPIC_ID, PARTITION)).unlink()
    assert offsets_of(reads) == []
    assert reads.position == 0


def test_read_of_a_store_that_does_not_answer_ends_after_three_more_attempts(tier: Tier) -> None:
    """Brokers have the rest in their caches, or say that it cannot be had."""
    tier.name(tier.write("a", range(10)), tier.write("b", range(10, 20)))
    pauses_s: list[float] = []
    reads = tier.reads(tier.history(), pauses_s.append)
    cut = tier.directory / "b"
    cut.write_bytes(cut.read_bytes()[:-1])
    assert offsets_of(reads) == list(range(10))
    assert reads.position == 10
    assert pauses_s == [1, 2, 4]


def test_read_of_an_object_with_other_records_than_its_manifest_says_ends_before_it(
    tier: Tier, caplog: pytest.LogCaptureFixture
) -> None:
    """A count reads nothing but the footer, and would be wrong in silence."""
    tier.name(tier.write("a", range(10)), replace(tier.write("b", range(10, 20)), record_count=11))
    reads = tier.reads(tier.history())
    assert [each.row_count for each in reads.rows([], check_crcs=True)] == [10]
    assert reads.position == 10
    assert "b has 10 records, in its manifest are 11" in caplog.text


def test_large_records_are_read_ahead_up_to_a_limit(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record may have a gigabyte, and a worker has no memory for several of them."""
    asked: list[int] = []

    class Watched(DirectoryStore):
        async def get_range(self, name: str, start: int, end: int) -> bytes:
            asked.append(end - start)
            return await super().get_range(name, start, end)

    monkeypatch.setattr(store_thread, "open_store", lambda uri, options: Watched(tier.directory))
    record = random.Random(1).randbytes(12_000_000)
    tier.name(tier.write("a", range(6), record))
    rows = tier.reads(tier.history()).rows(["value"], check_crcs=True)
    taken = [next(rows).row_count]
    store = store_thread.opened(StoreLocation(tier.directory.as_uri()))
    for _ in range(100):
        store.run(asyncio.sleep(0))
    assert sum(asked) < 12_500_000 * 3 + 100_000
    assert sum(taken) + sum(each.row_count for each in rows) == 6


def test_manifest_of_another_application_is_not_followed(tier: Tier) -> None:
    """It goes on with a history of its own, which this application's brokers do not have."""
    tier.name(tier.write("a", range(10)))
    reads = tier.reads(tier.history())
    (tier.directory / "a").unlink()
    tier.manifest = replace(tier.manifest, owner_epoch=2)
    tier.name(tier.write("other", range(10)))
    assert offsets_of(reads) == []
    assert reads.position == 0
