"""Fetches of records that only the object store has, over a real listener."""

import asyncio
from dataclasses import fields, replace
from typing import Any

from sparklog.node.metrics import remote_log, server
from sparklog.node.metrics.names import COUNT
from sparklog.node.remote_log.object_store import ObjectMissingError, StoreUnavailableError
from sparklog.node.storage.file_region import FileRegion
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import check_crc, iterate_headers
from sparklog.protocol.records.builder import read_records
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.remote_reads.tiered import REMOTE, Tiered, segment
from tests.unit.executor.requests import batch, fetch, produce, rows


def vars_of(entity: Any) -> dict[str, Any]:
    return {field.name: getattr(entity, field.name) for field in fields(entity)}


def offsets_of(row: Any) -> list[int]:
    """Return the offsets of the records in a row, whose batches must be whole."""
    records = row.records.read() if isinstance(row.records, FileRegion) else row.records
    found: list[int] = []
    for position, header in iterate_headers(records):
        check_crc(records, position, header)
        found += [record.offset or 0 for record in read_records(records, header, position)]
    return found


async def read_all(channel: Any, tiered: Tiered, offset: int, end: int, **options: Any) -> list[int]:
    """Fetch as a consumer from `offset` until its position is `end`; return the offsets of the records."""
    found: list[int] = []
    while offset < end:
        (row,) = rows(
            await channel.request(fetch(tiered.topic_id, {0: offset}, max_wait_ms=5_000, **options))
        )
        assert row.error_code is ErrorCode.none
        assert row.records, f"nothing at {offset}"
        found += [at for at in offsets_of(row) if at >= offset]
        offset = max(header.next_offset for _, header in iterate_headers(row.records))
    return found


@with_brokers(config=REMOTE)
async def test_consumer_reads_on_from_the_object_store_to_the_local_log(brokers: Brokers) -> None:
    """From the first record on, over row groups, segments and the seam, each record once."""
    tiered = await Tiered.create(brokers, [segment(range(12)), segment(range(12, 20))])
    channel = await brokers.connect(0)
    await channel.request(produce(tiered.topic_id, batch(3)))
    for isolation_level in (0, 1):
        found = await read_all(channel, tiered, 0, 23, isolation_level=isolation_level)
        assert found == list(range(23))
    (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 2}, isolation_level=1)))
    assert (row.high_watermark, row.log_start_offset, row.aborted_transactions) == (23, 0, ())


@with_brokers(config=REMOTE)
async def test_remote_records_are_loaded_once_for_all_their_readers(brokers: Brokers) -> None:
    """One footer and one ranged GET a row group, however many fetches come meanwhile and later."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    channels = [await brokers.connect(0) for _ in range(3)]
    tiered.store.gate.clear()
    waiting = [channel.request(fetch(tiered.topic_id, {0: 0}, max_wait_ms=20_000)) for channel in channels]
    await until(lambda: len(tiered.store.gets) == 1, "the GET of the footer")
    tiered.store.gate.set()
    for answer in waiting:
        assert offsets_of(*[rows(await answer)[0]]) == [0, 1, 2, 3, 4]
    (row,) = rows(await channels[0].request(fetch(tiered.topic_id, {0: 3})))
    assert (offsets_of(row)[-1], len(tiered.store.gets)) == (4, 2)


@with_brokers(config=REMOTE)
async def test_local_records_do_not_wait_for_remote_ones(brokers: Brokers) -> None:
    """Of one request, and of others on the same broker; what was loaded meanwhile comes with the next one."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    channel = await brokers.connect(0)
    local_id = await brokers.create_topic("local", [(0,)])
    await channel.request(produce(local_id, batch()))
    tiered.store.gate.clear()
    both = fetch(tiered.topic_id, {0: 0}, max_wait_ms=20_000)
    both = type(both)(**{**vars_of(both), "topics": both.topics + fetch(local_id, {0: 0}).topics})
    remote, local = rows(await asyncio.wait_for(channel.request(both), 10))
    assert (offsets_of(remote), remote.error_code, offsets_of(local)) == ([], ErrorCode.none, [0])
    tiered.store.gate.set()
    remote, local = rows(await channel.request(both))
    assert (offsets_of(local), tiered.store.gets != []) == ([0], True)
    assert await read_all(channel, tiered, 0, 5) == [0, 1, 2, 3, 4]


@with_brokers(config={**REMOTE, "remote.fetch.max.wait.ms": "80"})
async def test_fetch_that_would_not_wait_waits_for_the_object_store_a_while(brokers: Brokers) -> None:
    """A client without patience would get nothing but empty answers; it is not kept for long either."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    channel = await brokers.connect(0)
    tiered.store.gate.clear()
    loop = asyncio.get_running_loop()
    began = loop.time()
    (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 0}, max_wait_ms=0)))
    assert (row.error_code, offsets_of(row)) == (ErrorCode.none, [])
    assert loop.time() - began >= 0.08
    tiered.store.gate.set()
    assert await read_all(channel, tiered, 0, 5) == [0, 1, 2, 3, 4]


@with_brokers(config=REMOTE)
async def test_session_gets_the_remote_records_that_were_not_loaded_in_time(brokers: Brokers) -> None:
    """The answer without them must not count as all there is to tell of the partition."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    channel = await brokers.connect(0)
    local_id = await brokers.create_topic("local", [(0,)])
    await channel.request(produce(local_id, batch()))
    tiered.store.gate.clear()
    both = fetch(tiered.topic_id, {0: 0}, session_epoch=0)
    both = type(both)(**{**vars_of(both), "topics": both.topics + fetch(local_id, {0: 0}).topics})
    answer = await channel.request(both)
    assert [offsets_of(row) for row in rows(answer)] == [[], [0]]
    tiered.store.gate.set()
    on = fetch(local_id, {0: 1}, session_id=answer.session_id, session_epoch=1, max_wait_ms=20_000)
    (row,) = rows(await channel.request(on))
    assert offsets_of(row) == [0, 1, 2, 3, 4]


@with_brokers(config=REMOTE)
async def test_segment_that_was_cut_shows_only_the_records_that_count(brokers: Brokers) -> None:
    """An unclean election may have cut it: what lies outside of its window is of another history."""
    tiered = await Tiered.create(
        brokers, [segment(range(10), end=7), segment(range(5, 15), base=7)], epochs=((0, 0), (3, 7))
    )
    channel = await brokers.connect(0)
    assert await read_all(channel, tiered, 0, 15) == list(range(15))
    (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 6})))
    assert [header.partition_leader_epoch for _, header in iterate_headers(row.records)] == [0]
    (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 7})))
    assert [header.partition_leader_epoch for _, header in iterate_headers(row.records)] == [3]


@with_brokers(config=REMOTE)
async def test_consumer_passes_the_end_of_a_segment_that_was_cut_where_it_had_no_record(
    brokers: Brokers,
) -> None:
    """The window of a segment may end, or lie, between two of its records."""
    parts = [segment([0, 3, 9], end=7), segment([1, 5, 12], base=7, end=10), segment([10, 15], base=10)]
    tiered = await Tiered.create(brokers, parts)
    counted = [replace(part, record_count=3, max_timestamp_ms=2_000) for part in tiered.manifest.segments]
    tiered.manifest = replace(tiered.manifest, segments=tuple(counted))
    channel = await brokers.connect(0)
    for offset in range(16):
        expected = [at for at in (0, 3, 10, 15) if at >= offset]
        assert await read_all(channel, tiered, offset, 16) == expected


@with_brokers(config=REMOTE)
async def test_consumer_passes_offsets_without_records(brokers: Brokers) -> None:
    """Aborted or compacted away: in a row group, between segments, in a whole segment, at the end."""
    parts = [
        segment([0, 3, 4, 9]),
        segment([], base=10, end=15),
        segment([20, 21], base=18, end=30),
    ]
    tiered = await Tiered.create(brokers, parts, end=40)
    channel = await brokers.connect(0)
    assert await read_all(channel, tiered, 0, 40) == [0, 3, 4, 9, 20, 21]
    for offset in range(40):
        assert (await read_all(channel, tiered, offset, 40)) == [
            at for at in (0, 3, 4, 9, 20, 21) if at >= offset
        ]
    await channel.request(produce(tiered.topic_id, batch()))
    assert await read_all(channel, tiered, 22, 41) == [40]


@with_brokers(config=REMOTE)
async def test_log_that_starts_within_a_segment_refuses_what_is_below(brokers: Brokers) -> None:
    """Retention of the tier and DeleteRecords move the log start; the batch around it may hold more."""
    tiered = await Tiered.create(brokers, [segment(range(10))], log_start=3)
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 2})))
    assert (row.error_code, row.log_start_offset) == (ErrorCode.offset_out_of_range, 3)
    assert await read_all(channel, tiered, 3, 10) == list(range(3, 10))


@with_brokers(config={**REMOTE, "remote.fetch.max.wait.ms": "100"})
async def test_store_in_trouble_is_an_error_that_clients_retry(brokers: Brokers) -> None:
    """Not silence, not an offset out of range (they would skip records), and the replica stays online."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    channel = await brokers.connect(0)
    tiered.store.errors = [StoreUnavailableError("503")] * 3
    (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 0}, max_wait_ms=20_000)))
    assert (row.error_code, row.error_code.retriable) == (ErrorCode.kafka_storage_error, True)
    assert not tiered.replica.offline
    tiered.store.errors = []

    async def answered() -> list[int]:
        (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 0}, max_wait_ms=20_000)))
        return offsets_of(row)

    async with asyncio.timeout(10):
        while await answered() != [0, 1, 2, 3, 4]:
            pass


@with_brokers(config=REMOTE)
async def test_object_that_a_newer_manifest_names_no_more_is_not_missed(brokers: Brokers) -> None:
    """A merge has replaced it while its footer was being read: the fetch goes on with the newer manifest."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    channel = await brokers.connect(0)
    tiered.store.gate.clear()
    tiered.store.errors = [ObjectMissingError("gone")]
    waiting = channel.request(fetch(tiered.topic_id, {0: 0}, max_wait_ms=20_000))
    await until(lambda: len(tiered.store.gets) == 1, "the GET of the footer")
    await tiered.append(segment(range(5)))
    tiered.manifest = tiered.without_first()
    tiered.store.gate.set()
    (row,) = rows(await waiting)
    assert offsets_of(row) == [0, 1, 2, 3, 4]


@with_brokers(config={**REMOTE, "remote.fetch.max.wait.ms": "100"})
async def test_damaged_object_is_an_error_and_never_records(brokers: Brokers) -> None:
    """Its pages have checksums, and damage on the way is tried again before."""
    tiered = await Tiered.create(brokers, [segment(range(5), value=bytes(range(256)) * 8)])
    channel = await brokers.connect(0)
    tiered.store.damaged = {tiered.manifest.segments[0].name}
    async with asyncio.timeout(10):
        while True:
            (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 0}, max_wait_ms=20_000)))
            assert offsets_of(row) == []
            if row.error_code is not ErrorCode.none:
                break
    assert row.error_code is ErrorCode.corrupt_message


@with_brokers(config=REMOTE)
async def test_fetch_of_a_tier_whose_manifest_is_not_known_is_an_error_that_clients_retry(
    brokers: Brokers,
) -> None:
    """OFFSET_OUT_OF_RANGE would have them skip what the store has."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    tiered.replica.tier = None
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 0})))
    assert row.error_code is ErrorCode.kafka_storage_error


@with_brokers(config={**REMOTE, "remote.fetch.max.wait.ms": "50"})
async def test_remote_fetches_are_counted(brokers: Brokers) -> None:
    """By Kafka's metrics, of the topic and of all; they count as fetches, too."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    channel = await brokers.connect(0)
    assert await read_all(channel, tiered, 0, 5) == [0, 1, 2, 3, 4]
    tiered.replica.tier = None
    (refused,) = rows(await channel.request(fetch(tiered.topic_id, {0: 0})))
    assert refused.error_code is ErrorCode.kafka_storage_error
    figures = brokers.brokers[0].replicas.metrics.snapshot(0)
    for tags in ({}, {"topic": "t"}):
        assert figures[remote_log.FETCH_REQUESTS.of(**tags)] == 2
        assert figures[remote_log.FETCH_ERRORS.of(**tags)] == 1
        assert figures[remote_log.FETCH_BYTES.of(**tags)] == figures[server.BYTES_OUT.of(**tags)] > 500
    assert figures[remote_log.READER_QUEUE.of()] == 0
    assert figures[remote_log.READER_IDLE.of()] == 1
    assert figures[remote_log.READER_TIME.of()._replace(attribute=COUNT)] == 1


@with_brokers(config=REMOTE)
async def test_records_that_neither_tier_nor_local_log_has_are_not_skipped(brokers: Brokers) -> None:
    """A manifest that is too old for the log is an error: a reader must not take the rest for a gap."""
    tiered = await Tiered.create(brokers, [segment(range(5)), segment(range(5, 10))])
    channel = await brokers.connect(0)
    await channel.request(produce(tiered.topic_id, batch()))
    tiered.manifest = replace(tiered.manifest, segments=tiered.manifest.segments[:1], end_offset=5)
    assert await read_all(channel, tiered, 0, 5) == [0, 1, 2, 3, 4]
    (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 5})))
    assert (row.error_code, offsets_of(row)) == (ErrorCode.kafka_storage_error, [])


@with_brokers(config=REMOTE)
async def test_fetch_whose_client_disconnects_leaves_nothing_behind(brokers: Brokers) -> None:
    """The load goes on for the next one; nothing is answered."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    tiered.store.gate.clear()
    gone = await brokers.connect(0)
    waiting = gone.request(fetch(tiered.topic_id, {0: 0}, max_wait_ms=20_000))
    await until(lambda: len(tiered.store.gets) == 1, "the GET of the footer")
    gone.close()
    assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], Exception)
    delayed = brokers.brokers[0].replicas.delayed
    await until(lambda: len(delayed) == 0, "the fetch has left")
    tiered.store.gate.set()
    assert await read_all(await brokers.connect(0), tiered, 0, 5) == [0, 1, 2, 3, 4]
