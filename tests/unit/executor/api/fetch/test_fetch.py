"""Fetch over real logs and a real listener: consumers, followers, long polls, sessions."""

import asyncio
import gc
import importlib
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from sparklog.executor.api.fetch.fetch_sessions import FetchContext
from sparklog.executor.partitions.replica import Replica
from sparklog.node.calling.channel import Channel
from sparklog.node.metadata.schemas import ConfigRecord, PartitionChangeRecord, ResourceType
from sparklog.node.serving.requests import Deferred, Request
from sparklog.node.storage.file_region import FileRegion
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import iterate_headers, read_header
from tests.forked_process import in_forked_process
from tests.garbage import uncollected
from tests.open_files import open_below
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import MILLISECOND, batch, fetch, produce, rows


def offsets_of(row: Any) -> list[int]:
    # Over the wire they are bytes, the handler itself answers with a region of a file.
    records = row.records.read() if isinstance(row.records, FileRegion) else row.records
    return [header.base_offset for _, header in iterate_headers(records)]


async def fill(channel: Channel, topic_id: UUID, batches: int, partitions: int = 1, acks: int = 1) -> None:
    for _ in range(batches):
        await channel.request(produce(topic_id, *[batch(value=bytes(100))] * partitions, acks=acks))


@with_brokers(count=1)
async def test_fetch_returns_whole_batches_from_the_offset_on(brokers: Brokers) -> None:
    """They are the bytes of the log."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    await fill(channel, topic_id, 3)
    (row,) = rows(await channel.request(fetch(topic_id, {0: 1})))
    assert (row.error_code, row.high_watermark, row.log_start_offset) == (ErrorCode.none, 3, 0)
    assert offsets_of(row) == [1, 2]


@with_brokers(count=2)
async def test_fetch_of_a_consumer_ends_at_the_high_watermark(brokers: Brokers) -> None:
    """What is not committed may yet be lost, and must never have been seen."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await fill(channel, topic_id, 1, acks=-1)
    await brokers.stop(1)
    await fill(channel, topic_id, 1)
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0})))
    assert offsets_of(row) == [0]
    (row,) = rows(await channel.request(fetch(topic_id, {0: 1})))
    assert (row.error_code, offsets_of(row)) == (ErrorCode.none, [])


@with_brokers(count=2)
async def test_fetch_that_waits_is_answered_as_soon_as_records_are_committed(brokers: Brokers) -> None:
    """Long polling: no sooner than there is something, no later than that."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    reader, writer = await brokers.connect(0), await brokers.connect(0)
    for session_epoch in (-1, 0):
        end = brokers.replica(0, topic_id).high_watermark
        waiting = reader.request(
            fetch(topic_id, {0: end}, max_wait_ms=20_000, session_epoch=session_epoch), timeout_ms=25_000
        )
        await until(
            lambda: len(brokers.replica(0, topic_id).progress.consumer_readers) == 1, "the fetch waits"
        )
        await fill(writer, topic_id, 1)
        (row,) = rows(await waiting)
        assert offsets_of(row) == [end]
    # The request without a session has left nothing behind.
    assert len(brokers.replica(0, topic_id).progress.consumer_readers) == 1


@with_brokers(count=1)
async def test_fetch_that_waits_and_was_let_go_of_watches_what_it_finds_next(brokers: Brokers) -> None:
    """A replica that is opened anew knows nothing of who waited at the one before it."""
    topic_id = await brokers.create_topic("t", [(0,)])
    reader, writer = await brokers.connect(0), await brokers.connect(0)
    replica = brokers.replica(0, topic_id)
    waiting = reader.request(fetch(topic_id, {0: 0}, max_wait_ms=20_000), timeout_ms=25_000)
    await until(lambda: len(replica.progress.consumer_readers) == 1, "the fetch waits")
    (let_go,) = replica.progress.consumer_readers
    let_go.wake()
    let_go.unwatch()
    await until(lambda: len(replica.progress.consumer_readers) == 1, "the fetch waits again")
    await fill(writer, topic_id, 1)
    (row,) = rows(await waiting)
    assert offsets_of(row) == [0]


@with_brokers(count=1)
async def test_fetch_that_finds_nothing_is_answered_after_its_wait(brokers: Brokers) -> None:
    """Not before, and with the offsets as they are."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    loop = asyncio.get_running_loop()
    started = loop.time()
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0}, max_wait_ms=80)))
    assert loop.time() - started >= 0.08
    assert (row.error_code, row.high_watermark, offsets_of(row)) == (ErrorCode.none, 0, [])


@with_brokers(count=1)
async def test_fetch_with_min_bytes_waits_for_that_many(brokers: Brokers) -> None:
    """Fewer, larger answers are what the client asked for."""
    topic_id = await brokers.create_topic("t", [(0,)])
    reader, writer = await brokers.connect(0), await brokers.connect(0)
    await fill(writer, topic_id, 1)
    size_bytes = brokers.replica(0, topic_id).log.size_bytes
    waiting = reader.request(fetch(topic_id, {0: 0}, max_wait_ms=20_000, min_bytes=3 * size_bytes))
    await until(lambda: len(brokers.replica(0, topic_id).progress.consumer_readers) == 1, "the fetch waits")
    await fill(writer, topic_id, 1)
    await writer.request(fetch(topic_id, {0: 0}))
    assert not waiting.done()
    await fill(writer, topic_id, 1)
    (row,) = rows(await waiting)
    assert offsets_of(row) == [0, 1, 2]


@with_brokers(count=1)
async def test_fetch_keeps_to_its_bytes_but_always_gives_one_batch(brokers: Brokers) -> None:
    """A batch larger than the limit would block its reader for ever (KIP-74)."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    channel = await brokers.connect(0)
    await fill(channel, topic_id, 3, partitions=2)
    first, second = rows(await channel.request(fetch(topic_id, {0: 0, 1: 0}, max_bytes=10)))
    assert offsets_of(first) == [0]
    assert offsets_of(second) == []
    first, second = rows(await channel.request(fetch(topic_id, {0: 0, 1: 0}, partition_max_bytes=10)))
    assert offsets_of(first) == [0]


@with_brokers(count=1)
async def test_fetch_outside_the_log_is_out_of_range_and_tells_its_bounds(brokers: Brokers) -> None:
    """A follower finds its new start in the answer."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    await fill(channel, topic_id, 3)
    brokers.replica(0, topic_id).delete_records(2)
    for offset in (1, 4):
        (row,) = rows(await channel.request(fetch(topic_id, {0: offset}, max_wait_ms=20_000)))
        assert (row.error_code, row.log_start_offset) == (ErrorCode.offset_out_of_range, 2)


@with_brokers(count=1)
async def test_fetch_of_what_does_not_exist_is_answered_at_once(brokers: Brokers) -> None:
    """Waiting cannot make it exist for this request."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(fetch(uuid4(), {0: 0}, max_wait_ms=20_000)))
    assert row.error_code is ErrorCode.unknown_topic_id
    (row,) = rows(await channel.request(fetch(topic_id, {7: 0}, max_wait_ms=20_000)))
    assert row.error_code is ErrorCode.unknown_topic_or_partition


@with_brokers(count=1)
async def test_fetch_in_another_leader_epoch_is_refused(brokers: Brokers) -> None:
    """A client with old metadata learns of it before it reads (KIP-320)."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0}, leader_epoch=0)))
    assert row.error_code is ErrorCode.fenced_leader_epoch
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0}, leader_epoch=2)))
    assert row.error_code is ErrorCode.unknown_leader_epoch
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0}, leader_epoch=1)))
    assert row.error_code is ErrorCode.none


@with_brokers(count=1)
async def test_fetch_with_a_diverging_epoch_gets_the_epoch_and_no_records(brokers: Brokers) -> None:
    """The reader must cut its log before it appends anything (KIP-595)."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    await fill(channel, topic_id, 2)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await fill(channel, topic_id, 2)
    given = fetch(topic_id, {0: 3}, last_fetched_epoch=0, max_wait_ms=20_000)
    (row,) = rows(await channel.request(given))
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 2)
    assert offsets_of(row) == []


@with_brokers(count=3)
async def test_fetch_of_an_idle_follower_is_answered_soon_after_the_high_watermark_has_moved(
    brokers: Brokers,
) -> None:
    """It allows for a long wait, but its own readers must not see less than those of other followers."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    epochs = [each.broker_epoch for each in brokers.brokers.values()]
    for follower in (1, 2):
        await brokers.stop(follower)
    first, second = await brokers.connect(0), await brokers.connect(0)
    await fill(first, topic_id, 2)
    begun = await first.request(fetch(topic_id, {0: 2}, replica=(1, epochs[1]), session_epoch=0))
    held = asyncio.ensure_future(
        first.request(
            fetch(
                topic_id,
                {},
                replica=(1, epochs[1]),
                session_id=begun.session_id,
                session_epoch=1,
                max_wait_ms=60_000,
            )
        )
    )
    await second.request(fetch(topic_id, {0: 2}, replica=(2, epochs[2])))
    (row,) = rows(await held)
    assert (row.high_watermark, offsets_of(row)) == (2, [])


@with_brokers(count=2)
async def test_fetch_of_a_follower_whose_records_a_quota_holds_back_is_not_held_for_long(
    brokers: Brokers,
) -> None:
    """Nothing wakes it when the quota allows for more: a replica that moves would go on in leaps."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    epoch = brokers.brokers[1].broker_epoch
    await brokers.stop(1)
    await brokers.commit(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(0,)),
        *(
            ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
            for resource_type, resource_name, name, value in (
                (ResourceType.BROKER, "", "leader.replication.throttled.rate", "0"),
                (ResourceType.TOPIC, "t", "leader.replication.throttled.replicas", "*"),
            )
        ),
    )
    channel = await brokers.connect(0)
    await fill(channel, topic_id, 2)
    begun = await channel.request(fetch(topic_id, {0: 0}, replica=(1, epoch), session_epoch=0))
    held = channel.request(
        fetch(
            topic_id,
            {},
            replica=(1, epoch),
            session_id=begun.session_id,
            session_epoch=1,
            max_wait_ms=60_000,
        )
    )
    answer = await asyncio.wait_for(held, 30)
    assert [offsets_of(row) for row in rows(answer)] == []


@with_brokers(count=2)
async def test_fetch_of_a_follower_moves_the_high_watermark_in_the_answer(brokers: Brokers) -> None:
    """Its offset is its acknowledgement; a stale incarnation's is refused (KIP-903)."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    epoch = brokers.brokers[1].broker_epoch
    await brokers.stop(1)
    channel = await brokers.connect(0)
    await fill(channel, topic_id, 2)
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0}, replica=(1, epoch))))
    assert (row.high_watermark, offsets_of(row)) == (0, [0, 1])
    (row,) = rows(await channel.request(fetch(topic_id, {0: 2}, replica=(1, epoch - 50))))
    assert row.error_code is ErrorCode.not_leader_or_follower
    assert brokers.replica(0, topic_id).high_watermark == 0
    (row,) = rows(await channel.request(fetch(topic_id, {0: 2}, replica=(1, epoch))))
    assert row.high_watermark == 2
    (row,) = rows(await channel.request(fetch(topic_id, {0: 2}, replica=(9, 1))))
    assert row.error_code is ErrorCode.unknown_leader_epoch


@with_brokers(count=2)
async def test_fetch_that_waits_is_answered_when_the_leadership_ends(brokers: Brokers) -> None:
    """The reader should find the new leader now, not after its wait."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    epoch = brokers.replica(0, topic_id).leader_epoch
    assert epoch is not None
    asked = fetch(topic_id, {0: 0}, leader_epoch=epoch, max_wait_ms=20_000)
    waiting = channel.request(asked, timeout_ms=25_000)
    await until(lambda: len(brokers.replica(0, topic_id).progress.consumer_readers) == 1, "the fetch waits")
    await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
    (row,) = rows(await waiting)
    assert (row.error_code, row.current_leader.leader_id) == (ErrorCode.fenced_leader_epoch, 1)


@with_brokers(count=1)
async def test_fetch_that_waits_is_answered_when_the_topic_is_deleted(brokers: Brokers) -> None:
    """And a session that held it goes on to say so."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    waiting = channel.request(fetch(topic_id, {0: 0}, max_wait_ms=20_000, session_epoch=0), timeout_ms=25_000)
    await until(lambda: len(brokers.replica(0, topic_id).progress.consumer_readers) == 1, "the fetch waits")
    await brokers.delete_topic(topic_id)
    response = await waiting
    (row,) = rows(response)
    assert row.error_code is ErrorCode.unknown_topic_id
    given = fetch(topic_id, {}, session_id=response.session_id, session_epoch=1, max_wait_ms=20_000)
    (row,) = rows(await channel.request(given))
    assert row.error_code is ErrorCode.unknown_topic_id


@with_brokers(count=1)
async def test_fetch_whose_connection_ends_while_it_waits_leaves_nothing_behind(brokers: Brokers) -> None:
    """Clients come and go by the thousand."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    channel.request(fetch(topic_id, {0: 0}, max_wait_ms=20_000)).cancel()
    await until(lambda: len(brokers.replica(0, topic_id).progress.consumer_readers) == 1, "the fetch waits")
    channel.close()
    await until(
        lambda: len(brokers.replica(0, topic_id).progress.consumer_readers) == 0, "the fetch is forgotten"
    )


@with_brokers()
async def test_fetch_that_waited_leaves_no_file_open_once_it_is_answered(brokers: Brokers) -> None:
    """Garbage is collected seldom; until then the bytes of a deleted log would stay on the disk."""
    topic_id = await brokers.create_topic("t", [(0,)])
    reader, writer = await brokers.connect(0), await brokers.connect(0)
    directory = brokers.replica(0, topic_id).log.directory
    gc.collect()
    gc.disable()
    try:
        waiting = reader.request(fetch(topic_id, {0: 0}, max_wait_ms=20_000), timeout_ms=25_000)
        await until(lambda: len(brokers.brokers[0].replicas.delayed) == 1, "the fetch waits")
        await fill(writer, topic_id, 1)
        (row,) = rows(await waiting)
        assert offsets_of(row) == [0]
        await brokers.delete_topic(topic_id)
        await until(lambda: not open_below(directory), "the log's files are closed")
    finally:
        gc.enable()


# --- sessions ---------------------------------------------------------------------------------------


@with_brokers(count=1)
async def test_session_tells_only_what_changed(brokers: Brokers) -> None:
    """A reader of a thousand partitions does not pay for the quiet ones (KIP-227)."""
    topic_id = await brokers.create_topic("t", [(0,), (0,), (0,)])
    channel = await brokers.connect(0)
    response = await channel.request(fetch(topic_id, {0: 0, 1: 0, 2: 0}, session_epoch=0))
    assert response.session_id > 0
    assert len(rows(response)) == 3
    await channel.request(produce(topic_id, None, batch()))
    session = {"session_id": response.session_id}
    (row,) = rows(await channel.request(fetch(topic_id, {}, session_epoch=1, **session)))
    assert (row.partition_index, offsets_of(row)) == (1, [0])
    # Not asked for from another offset, the same records come again.
    (row,) = rows(await channel.request(fetch(topic_id, {}, session_epoch=2, **session)))
    assert (row.partition_index, offsets_of(row)) == (1, [0])
    assert rows(await channel.request(fetch(topic_id, {1: 1}, session_epoch=3, **session))) == []
    # Forgotten partitions are silent.
    assert rows(await channel.request(fetch(topic_id, {}, session_epoch=4, forgotten=(1,), **session))) == []
    await channel.request(produce(topic_id, None, batch()))
    assert rows(await channel.request(fetch(topic_id, {}, session_epoch=5, **session))) == []


@with_brokers(count=2)
async def test_session_tells_a_follower_again_what_it_had_no_use_for(brokers: Brokers) -> None:
    """One that has to cut its log takes nothing else from that answer.

    Where nothing was appended afterwards, its high watermark stayed behind for good.
    """
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await fill(channel, topic_id, 2, acks=-1)
    follower = {"replica": (1, brokers.brokers[1].broker_epoch), "last_fetched_epoch": 0}
    await brokers.stop(1)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    response = await channel.request(fetch(topic_id, {0: 3}, session_epoch=0, **follower))
    (row,) = rows(response)
    assert (row.diverging_epoch.end_offset, row.high_watermark) == (2, 2)
    session = {"session_id": response.session_id, **follower}
    (row,) = rows(await channel.request(fetch(topic_id, {0: 2}, session_epoch=1, **session)))
    assert (row.error_code, row.high_watermark, offsets_of(row)) == (ErrorCode.none, 2, [])
    assert rows(await channel.request(fetch(topic_id, {}, session_epoch=2, **session))) == []


@pytest.mark.parametrize("names_it", [False, True])
def test_follower_that_an_old_request_sets_back_is_where_its_session_says_again(
    names_it: bool, tmp_path: Any
) -> None:
    """Of an idle partition it would be taken to lag, and stay out of the ISR until somebody appends.

    A session in which the follower `names_it` again is told of the high watermark again, which is news.
    """

    @with_brokers(count=2)
    async def scenario(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0, 1)])
        broker_epoch = brokers.brokers[1].broker_epoch
        await brokers.stop(1)
        channel, old = await brokers.connect(0), await brokers.connect(0)
        await fill(channel, topic_id, 2)
        replica = (1, broker_epoch)
        begun = await channel.request(fetch(topic_id, {0: 2}, session_epoch=0, replica=replica))
        leader = brokers.replica(0, topic_id).leadership
        assert leader is not None
        follower = leader.followers[1]

        def next_fetch(session_epoch: int, offsets: dict[int, int], max_wait_ms: int) -> Any:
            session = {"session_id": begun.session_id, "session_epoch": session_epoch}
            return channel.request(
                fetch(topic_id, offsets, max_wait_ms=max_wait_ms, replica=replica, **session)
            )

        waiting = asyncio.ensure_future(next_fetch(1, {0: 2} if names_it else {}, 300))
        await asyncio.sleep(0)
        await old.request(fetch(topic_id, {0: 0}, replica=replica))
        assert follower.log_end_offset == 0
        await waiting
        await next_fetch(2, {}, 0)
        assert follower.log_end_offset == 2

    scenario(tmp_path)


class AppendsOnce:
    """Appends as soon as the high watermark moves, as a coordinator does."""

    is_follower = False

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        replica.progress.add_reader(self)

    def touch(self) -> None: ...

    def wake(self) -> None:
        self._replica.progress.remove_reader(self)
        records = batch()
        self._replica.append(records, read_header(records), 0, 0, None)

    def unwatch(self) -> None: ...


@with_brokers(count=2)
async def test_session_tells_a_follower_what_its_own_fetch_has_led_a_coordinator_to_append(
    brokers: Brokers,
) -> None:
    """It never heard of it: until somebody else appended, it was taken to lag, and left the ISR."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await fill(channel, topic_id, 1, acks=-1)
    follower = {"replica": (1, brokers.brokers[1].broker_epoch)}
    await brokers.stop(1)
    begun = await channel.request(fetch(topic_id, {0: 1}, session_epoch=0, **follower))
    session = {"session_id": begun.session_id, **follower}
    await fill(channel, topic_id, 1)
    AppendsOnce(brokers.replica(0, topic_id))
    (row,) = rows(await channel.request(fetch(topic_id, {0: 2}, session_epoch=1, **session)))
    assert (row.high_watermark, offsets_of(row)) == (2, [2])


def test_session_tells_what_was_appended_while_a_long_request_was_read(tmp_path: Any) -> None:
    """What changes between the look at its partition and the answer is told with the next one."""

    @with_brokers(count=1)
    async def scenario(brokers: Brokers) -> None:
        count = 102
        topic_id = await brokers.create_topic("t", [(0,)] * count)
        channel = await brokers.connect(0)
        handle: Any = brokers.brokers[0].apis[ApiKey.FETCH].handler
        caller = Caller()

        def ask(offsets: dict[int, int], **session: Any) -> Any:
            body = fetch(topic_id, offsets, **session)
            return handle(Request(ApiKey.FETCH, 17, 0, None, body, memoryview(b""), caller, "PLAINTEXT"))

        everything = dict.fromkeys(range(count), 0)
        session = {"session_id": in_one_go(ask(everything, session_epoch=0)).session_id}
        await channel.request(produce(topic_id, batch(), batch()))
        steps = ask({**everything, 0: 1}, session_epoch=1, **session)
        steps.send(None)  # to the first partition
        steps.send(None)  # behind it
        await channel.request(produce(topic_id, batch()))
        first, second = rows(in_one_go(steps))
        assert (first.high_watermark, offsets_of(first), offsets_of(second)) == (1, [], [0])
        sent = {row.partition_index: row for row in rows(ask({}, session_epoch=2, **session))}
        assert offsets_of(sent[0]) == [1]

    scenario(tmp_path)


@with_brokers(count=1)
async def test_session_serves_partitions_in_turn_when_the_answer_is_full(brokers: Brokers) -> None:
    """Otherwise the first partition with much to read would starve the others."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    channel = await brokers.connect(0)
    response = await channel.request(fetch(topic_id, {0: 0, 1: 0}, session_epoch=0))
    await fill(channel, topic_id, 2, partitions=2)
    session = {"session_id": response.session_id, "max_bytes": 10}
    sent = rows(await channel.request(fetch(topic_id, {}, session_epoch=1, **session)))
    assert [row.partition_index for row in sent if len(row.records)] == [0]
    sent = rows(await channel.request(fetch(topic_id, {0: 1}, session_epoch=2, **session)))
    assert [row.partition_index for row in sent if len(row.records)] == [1]


@with_brokers(count=1)
async def test_session_errors_say_what_to_do(brokers: Brokers) -> None:
    """An unknown session begins anew, an epoch out of line means a lost request."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    response = await channel.request(fetch(topic_id, {0: 0}, session_id=77, session_epoch=1))
    assert response.error_code is ErrorCode.fetch_session_id_not_found
    response = await channel.request(fetch(topic_id, {0: 0}, session_epoch=0))
    session_id = response.session_id
    response = await channel.request(fetch(topic_id, {}, session_id=session_id, session_epoch=5))
    assert response.error_code is ErrorCode.invalid_fetch_session_epoch
    # Epoch -1 closes it.
    await channel.request(fetch(topic_id, {0: 0}, session_id=session_id, session_epoch=-1))
    response = await channel.request(fetch(topic_id, {}, session_id=session_id, session_epoch=1))
    assert response.error_code is ErrorCode.fetch_session_id_not_found


@with_brokers()
async def test_session_whose_connection_ended_costs_the_partitions_nothing_until_it_is_used_again(
    brokers: Brokers,
) -> None:
    """Clients come and go; what a thousand of them once fetched is not to slow each append."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    replica, other = brokers.replica(0, topic_id, 0), brokers.replica(0, topic_id, 1)
    sessions = []
    channels = [await brokers.connect(0) for _ in range(3)]
    for channel in channels:
        response = await channel.request(fetch(topic_id, {0: 0, 1: 0}, session_epoch=0))
        sessions.append(response.session_id)
    follower = await brokers.connect(0)
    await follower.request(fetch(topic_id, {0: 0}, session_epoch=0, replica=(7, 1)))
    held = channels[0].request(
        fetch(topic_id, {}, session_id=sessions[0], session_epoch=1, max_wait_ms=20_000), timeout_ms=25_000
    )
    waiting = asyncio.ensure_future(held)
    delayed = brokers.brokers[0].replicas.delayed
    await until(lambda: len(delayed) == 1, "a fetch is held")
    assert (len(replica.progress.consumer_readers), len(other.progress.consumer_readers)) == (3, 3)
    assert len(replica.progress.follower_readers) == 1
    for channel in (*channels, follower):
        channel.close()
    await until(
        lambda: not replica.progress.consumer_readers and not replica.progress.follower_readers,
        "nobody reads here",
    )
    assert not other.progress.consumer_readers
    assert len(delayed) == 0, "the fetch that was held is dropped"
    await asyncio.gather(waiting, return_exceptions=True)

    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(), batch()))
    session = {"session_id": sessions[1]}
    response = await channel.request(fetch(topic_id, {}, session_epoch=1, **session))
    assert response.error_code is ErrorCode.none
    assert {row.partition_index: row.high_watermark for row in rows(response)} == {0: 1, 1: 1}
    assert (len(replica.progress.consumer_readers), len(other.progress.consumer_readers)) == (1, 1)
    assert rows(await channel.request(fetch(topic_id, {0: 1, 1: 1}, session_epoch=2, **session))) == []
    woken = asyncio.ensure_future(
        channel.request(
            fetch(topic_id, {}, session_epoch=3, max_wait_ms=20_000, **session), timeout_ms=25_000
        )
    )
    producer = await brokers.connect(0)
    await producer.request(produce(topic_id, None, batch()))
    assert [row.partition_index for row in rows(await woken)] == [1]


class Caller:
    """A connection as a handler sees it."""

    peer = "127.0.0.1:1"
    accepted_ms = 0
    client_software = ("", "")
    closed = False

    def __init__(self) -> None:
        self.close_callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        self.close_callbacks.append(callback)


@pytest.mark.parametrize("happens", ["forgotten", "closed"])
def test_session_used_while_a_long_request_is_read_leaves_nothing_registered(
    happens: str, tmp_path: Any
) -> None:
    """What nobody asks for any more would be touched at every append for as long as the broker runs."""

    @with_brokers(count=1)
    async def scenario(brokers: Brokers) -> None:
        last = 101
        topic_id = await brokers.create_topic("t", [(0,)] * (last + 1))
        handle: Any = brokers.brokers[0].apis[ApiKey.FETCH].handler
        first, second = Caller(), Caller()

        def ask(caller: Caller, offsets: dict[int, int], **session: Any) -> Any:
            body = fetch(topic_id, offsets, **session)
            return handle(Request(ApiKey.FETCH, 17, 0, None, body, memoryview(b""), caller, "PLAINTEXT"))

        everything = dict.fromkeys(range(last + 1), 0)
        begun = in_one_go(ask(first, everything, session_epoch=0))
        steps = ask(first, everything, session_id=begun.session_id, session_epoch=1)
        steps.send(None)
        next_steps = ask(second, {}, session_id=begun.session_id, session_epoch=2, forgotten=(last,))
        next_steps.send(None)
        if happens == "closed":
            next_steps.close()  # as a connection does with the coroutines of its requests
            for callback in second.close_callbacks:
                callback()
        in_one_go(steps)
        if happens == "forgotten":
            in_one_go(next_steps)
        readers = [
            number for number in everything if brokers.replica(0, topic_id, number).progress.consumer_readers
        ]
        assert readers == ([] if happens == "closed" else list(range(last)))

    scenario(tmp_path)


@with_brokers()
async def test_session_moved_to_another_connection_outlives_the_first(brokers: Brokers) -> None:
    """The loss of a connection that it has left is nothing to it."""
    topic_id = await brokers.create_topic("t", [(0,)])
    replica = brokers.replica(0, topic_id)
    first, second = await brokers.connect(0), await brokers.connect(0)
    session_id = (await first.request(fetch(topic_id, {0: 0}, session_epoch=0))).session_id
    await second.request(fetch(topic_id, {}, session_id=session_id, session_epoch=1))
    listener = brokers.brokers[0].listener
    open_before = listener.connection_count
    first.close()
    await until(lambda: listener.connection_count == open_before - 1, "the first connection is gone")
    assert len(replica.progress.consumer_readers) == 1
    second.close()
    await until(lambda: not replica.progress.consumer_readers, "nobody reads here")


@with_brokers(count=2, config={"max.incremental.fetch.session.cache.slots": "1"})
async def test_session_cache_when_full_serves_without_a_session_and_prefers_followers(
    brokers: Brokers,
) -> None:
    """A full slot table costs a client its session, never its data; replication goes first."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    first = await channel.request(fetch(topic_id, {0: 0}, session_epoch=0))
    assert first.session_id > 0
    second = await channel.request(fetch(topic_id, {0: 0}, session_epoch=0))
    assert (second.error_code, second.session_id) == (ErrorCode.none, 0)
    epoch = brokers.brokers[1].broker_epoch
    third = await channel.request(fetch(topic_id, {0: 0}, session_epoch=0, replica=(1, epoch)))
    assert third.session_id > 0
    gone = await channel.request(fetch(topic_id, {}, session_id=first.session_id, session_epoch=1))
    assert gone.error_code is ErrorCode.fetch_session_id_not_found


@with_brokers(count=1)
async def test_session_request_behind_one_that_waits_has_that_answered(brokers: Brokers) -> None:
    """A follower passes its waiting fetch to say that it follows one more partition."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, None, batch()))
    first = await channel.request(fetch(topic_id, {0: 0}, session_epoch=0))
    session = {"session_id": first.session_id, "max_wait_ms": 20_000}
    waiting = channel.request(fetch(topic_id, {}, session_epoch=1, **session), timeout_ms=25_000)
    following = channel.request(fetch(topic_id, {1: 0}, session_epoch=2, **session), timeout_ms=25_000)
    assert rows(await waiting) == []
    (row,) = rows(await following)
    assert row.partition_index == 1


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_of_every_version_is_answered_in_it(version: int, tmp_path: Any) -> None:
    """Clients of eight years speak these."""

    @with_brokers(count=1)
    async def body(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0,)])
        channel = await brokers.connect(0)
        await fill(channel, topic_id, 1)
        module = importlib.import_module(f"kio.schema.fetch.v{version}.request")
        partition = module.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        named = {"topic_id": topic_id} if version >= 13 else {"topic": "t"}
        extra: dict[str, Any] = {"forgotten_topics_data": ()} if version >= 7 else {}
        request = module.FetchRequest(
            max_wait=0 * MILLISECOND,
            min_bytes=1,
            isolation_level=1,
            topics=(module.FetchTopic(**named, partitions=(partition,)),),
            **extra,
            **({"replica_id": -1} if version < 15 else {}),
        )
        response = await channel.request(request)
        assert response.__version__ == version
        (row,) = rows(response)
        assert (row.error_code, row.high_watermark, offsets_of(row)) == (ErrorCode.none, 1, [0])
        assert row.aborted_transactions == ()

    body(tmp_path)


@pytest.mark.parametrize("version", [4, 5, 14, 15])
def test_fetch_of_every_version_by_a_stranger_that_says_it_follows_is_refused(
    version: int, tmp_path: Any
) -> None:
    """Nobody follows with versions as old, but anybody may say so."""

    @with_brokers(count=1)
    async def body(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0,)])
        channel = await brokers.connect(0)
        module = importlib.import_module(f"kio.schema.fetch.v{version}.request")
        partition = module.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        named = {"topic_id": topic_id} if version >= 13 else {"topic": "t"}
        extra: dict[str, Any] = {"forgotten_topics_data": ()} if version >= 7 else {}
        follower = (
            {"replica_state": module.ReplicaState(replica_id=9)} if version >= 15 else {"replica_id": 9}
        )
        request = module.FetchRequest(
            max_wait=0 * MILLISECOND,
            min_bytes=1,
            isolation_level=0,
            topics=(module.FetchTopic(**named, partitions=(partition,)),),
            **extra,
            **follower,
        )
        (row,) = rows(await channel.request(request))
        assert row.error_code is ErrorCode.unknown_leader_epoch

    body(tmp_path)


@in_forked_process
@with_brokers(count=1)
async def test_fetch_without_a_session_leaves_no_garbage(brokers: Brokers) -> None:
    """Two objects a partition that refer to each other: librdkafka asks for thousands, again and again."""
    topic_id = await brokers.create_topic("t", [(0,)])
    reader, leaver, writer = [await brokers.connect(0) for _ in range(3)]
    readers = brokers.replica(0, topic_id).progress.consumer_readers
    await fill(writer, topic_id, 1)
    with uncollected(FetchContext, Deferred) as left:
        await reader.request(fetch(topic_id, {0: 0}))
        waiting = [each.request(fetch(topic_id, {0: 1}, max_wait_ms=20_000)) for each in (reader, leaver)]
        await until(lambda: len(readers) == 2, "both fetches wait")
        leaver.close()
        await until(lambda: len(readers) == 1, "one was given up")
        await fill(writer, topic_id, 1)
        await waiting[0]
        await until(lambda: left() == [], "nothing of the fetches is left")
    await asyncio.gather(*waiting, return_exceptions=True)
