"""What a follower asks of its leader, request by request."""

from dataclasses import replace

from kio.schema.fetch.v17.response import FetchableTopicResponse, FetchResponse, PartitionData

from sparklog.executor.fetching.leader_fetches import FetchLimits, LeaderFetches
from sparklog.executor.fetching.machine.turn_size import TURN_US
from sparklog.executor.partitions.machine.follower import AskLeaderOffsets
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.protocol.codec.fixed.fetch import FollowerFetchRequest
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.executor.requests import MILLISECOND

LIMITS = FetchLimits(
    max_wait_ms=500,
    idle_wait_ms=2_500,
    min_bytes=1,
    max_bytes=1 << 20,
    partition_max_bytes=1 << 20,
    backoff=ExponentialBackoff(first_ms=20, max_ms=1_000),
)
SESSION = FetchResponse(
    throttle_time=0 * MILLISECOND, error_code=ErrorCode.none, session_id=7, responses=(), node_endpoints=()
)


@with_brokers(count=2)
async def test_partition_that_goes_while_a_session_is_begun_is_forgotten_by_it(brokers: Brokers) -> None:
    """The leader answered for it at once, as it leads it no more, and was asked again at once, for good."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    stays, goes = (brokers.replica(1, topic_id, partition) for partition in (0, 1))
    fetches = LeaderFetches(1, LIMITS)
    for replica in (stays, goes):
        fetches.add(replica)
    begins = fetches.next_request(broker_epoch=1)
    assert [each.partition for topic in begins.topics for each in topic.partitions] == [0, 1]
    fetches.remove(goes)
    assert list(fetches.answered(SESSION)) == []
    continues = fetches.next_request(broker_epoch=1)
    assert continues.session_id == SESSION.session_id
    assert [(each.topic_id, each.partitions) for each in continues.forgotten_topics_data] == [
        (topic_id, (1,))
    ]


@with_brokers(count=2)
async def test_partition_that_goes_and_comes_while_a_session_is_begun_stays_in_it(brokers: Brokers) -> None:
    """What is said of it anew is not taken back in the same request."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    replica = brokers.replica(1, topic_id)
    fetches = LeaderFetches(1, LIMITS)
    fetches.add(replica)
    fetches.next_request(broker_epoch=1)
    fetches.remove(replica)
    fetches.add(replica)
    assert list(fetches.answered(SESSION)) == []
    continues = fetches.next_request(broker_epoch=1)
    assert [each.partition for topic in continues.topics for each in topic.partitions] == [0]
    assert continues.forgotten_topics_data == ()


@with_brokers(count=2)
async def test_partition_whose_log_is_not_ready_is_not_fetched_for_after_an_error_of_the_session(
    brokers: Brokers,
) -> None:
    """Its log was being built from the tier and not on the disk yet; a fetch had it count as a replica."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    ready, held = (brokers.replica(1, topic_id, partition) for partition in (0, 1))
    fetches = LeaderFetches(1, LIMITS)
    for replica in (ready, held):
        fetches.add(replica)
    fetches.next_request(broker_epoch=1)
    assert list(fetches.answered(SESSION)) == []
    fetches.taken(held, AskLeaderOffsets(), now_ms=0)
    fetches.next_request(broker_epoch=1)
    ended = replace(SESSION, error_code=ErrorCode.fetch_session_id_not_found, session_id=0)
    assert list(fetches.answered(ended)) == []
    assert asked(fetches.next_request(broker_epoch=1)) == [0]
    fetches.go_on(held)
    assert list(fetches.answered(SESSION)) == []
    assert asked(fetches.next_request(broker_epoch=1)) == [1]


def asked(request: FollowerFetchRequest) -> list[int]:
    return [each.partition for topic in request.topics for each in topic.partitions]


@with_brokers(count=2)
async def test_request_after_an_answer_that_took_long_asks_for_less_of_each_partition(
    brokers: Brokers,
) -> None:
    """A partition that is copied must not take all the room of those that are in sync."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    fetches = LeaderFetches(1, LIMITS)
    fetches.add(brokers.replica(1, topic_id, 0))
    first = fetches.next_request(broker_epoch=1)
    assert list(fetches.answered(SESSION)) == []
    fetches.size.took(1 << 20, 2 * TURN_US)
    fetches.add(brokers.replica(1, topic_id, 1))
    second = fetches.next_request(broker_epoch=1)
    assert [
        (each.max_bytes, each.topics[0].partitions[0].partition_max_bytes) for each in (first, second)
    ] == [(1 << 20, 1 << 20), (1 << 19, 1 << 17)]


@with_brokers(count=2)
async def test_refused_partition_is_asked_for_every_tenth_of_the_first_second(brokers: Brokers) -> None:
    """A leader may learn late of its election: then writes with acks=all wait for the next fetch only."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    replica = brokers.replica(1, topic_id)
    fetches = LeaderFetches(1, LIMITS)
    fetches.add(replica)
    pauses = [fetches.refused(replica, now_ms=0) for _ in range(14)]
    assert pauses == [20, 40, 80, *[100] * 9, 1_000, 1_000]
    fetches.add(replica)
    assert fetches.refused(replica, now_ms=0) == 20


@with_brokers(count=2)
async def test_idle_followers_requests_wait_longer_until_an_answer_has_something(brokers: Brokers) -> None:
    """Each empty answer wakes two brokers, on any number of partitions without traffic."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    fetches = LeaderFetches(1, LIMITS)
    fetches.add(brokers.replica(1, topic_id))
    partition = PartitionData(
        partition_index=0, error_code=ErrorCode.none, high_watermark=0, aborted_transactions=(), records=None
    )
    news = replace(SESSION, responses=(FetchableTopicResponse(topic_id=topic_id, partitions=(partition,)),))

    waits = []
    for answer in (SESSION, SESSION, SESSION, news, SESSION, replace(SESSION, session_id=0), SESSION):
        wait_ms = fetches.wait_ms
        waits.append(fetches.next_request(broker_epoch=1).max_wait // MILLISECOND)
        assert waits[-1] == wait_ms
        for _ in fetches.answered(answer):
            pass

    assert waits == [0, 500, 2_500, 2_500, 500, 2_500, 0]
