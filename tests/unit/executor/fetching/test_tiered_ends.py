"""Where the tiers of a broker's partitions end, for its checks of local retention and its cleaner."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.executor.fetching.leader_offsets import LedPartition
from sparklog.executor.fetching.tiered_ends import TieredEnds
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicPartition


@dataclass(eq=False)
class Replica:
    """A follower of `leader_id`, or a leader with a `tier`."""

    topic_partition: TopicPartition
    leader_id: int | None = 1
    leader_epoch: int | None = 4
    tier: Any = None
    leadership: object | None = None


@dataclass
class Tier:
    tiered_end_offset: int | None


class Leaders:
    """Leaders that answer 7 for each partition; those of `unreachable` do not."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None, unreachable: Sequence[int] = ()) -> None:
        self.asked: list[tuple[int, list[LedPartition]]] = []
        self._meanwhile = meanwhile
        self._unreachable = unreachable

    async def tiered_ends(self, leader_id: int, led: Sequence[LedPartition]) -> dict[TopicPartition, int]:
        self.asked.append((leader_id, list(led)))
        self._meanwhile()
        if leader_id in self._unreachable:
            raise KafkaError(ErrorCode.network_exception, "unreachable")
        return {each.partition: 7 for each in led}


FIRST, SECOND, THIRD = (Replica(TopicPartition("t", number)) for number in range(3))


def test_followers_ask_their_leaders_once_and_leaders_know() -> None:
    """A broker has thousands of partitions, and few leaders."""
    other = Replica(TopicPartition("t", 3), leader_id=2)
    led = Replica(TopicPartition("t", 4), tier=Tier(9), leadership=object())
    unknown = Replica(TopicPartition("t", 5), leadership=object())
    leaderless = Replica(TopicPartition("t", 6), leader_id=None)
    leaders = Leaders(unreachable=[2])
    ends = asyncio.run(TieredEnds(leaders).of([FIRST, SECOND, other, led, unknown, leaderless]))
    assert ends == {FIRST: 7, SECOND: 7, led: 9}
    asked = [LedPartition(replica.topic_partition, 4) for replica in (FIRST, SECOND)]
    assert leaders.asked == [(1, asked), (2, [LedPartition(other.topic_partition, 4)])]


def test_end_of_an_earlier_leader_epoch_does_not_count() -> None:
    """After an unclean election the tier may end before, and the log have other records there."""
    elected = Replica(TopicPartition("t", 7))
    deposed = Replica(TopicPartition("t", 8), tier=Tier(9), leadership=object())

    def elect() -> None:
        elected.leader_epoch = deposed.leader_epoch = 5

    assert asyncio.run(TieredEnds(Leaders(elect)).of([elected, deposed, THIRD])) == {THIRD: 7}
