"""What a broker's process does as a follower: one loop a leader, over production replicas.

It mirrors `executor.fetching.fetcher` without sessions: a partition is in at most one request at a time,
and one that is added while others wait is asked for at once.
"""

from typing import TYPE_CHECKING, Any, Final

from executor.partitions.machine.follower import AwaitMetadata, FetchAnswered, PartitionFetch
from executor.partitions.replica import Replica
from executor.partitions.role_listener import RoleListener
from sparklog.errors import KafkaError
from sparklog.exponential_backoff import ExponentialBackoff
from sparklog.types import BrokerId, TopicIdPartition
from tests.simulation.leading import FETCH_WAIT_MS, FetchedPartition, FollowerFetch
from tests.simulation.network import Link

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess

BACKOFF: Final = ExponentialBackoff(first_ms=20, max_ms=1_000)
SOCKET_TIMEOUT_MS: Final = 3_000


class FetchLoops(RoleListener[Replica]):
    """The fetching of one broker, as `executor.fetching.fetchers` does it."""

    def __init__(self, broker: "BrokerProcess") -> None:
        self._broker = broker
        self._loops: dict[BrokerId, FetchLoop] = {}

    def add(self, replica: Replica) -> None:
        """Fetch for `replica` from the leader that it follows now."""
        leader_id = None if replica.follower is None else replica.follower.leader_id
        if leader_id is not None:
            if leader_id not in self._loops:
                self._loops[leader_id] = FetchLoop(self._broker, leader_id)
            self._loops[leader_id].add(replica.key, replica)

    def became_follower(self, replica: Replica) -> None:
        self.stopped(replica)
        self.add(replica)

    def stopped(self, replica: Replica) -> None:
        for loop in self._loops.values():
            loop.remove(replica.key)

    became_leader = deleted = stopped


class FetchLoop:
    """Follows one leader for some partitions."""

    def __init__(self, broker: "BrokerProcess", leader_id: BrokerId) -> None:
        self._broker = broker
        self._link = Link(broker, f"broker-{leader_id}")
        self._replicas: dict[TopicIdPartition, Replica] = {}
        self._due: dict[TopicIdPartition, None] = {}
        self._refusals: dict[TopicIdPartition, int] = {}
        self._failures = 0
        self._backing_off = False
        self._will_send = False

    def __len__(self) -> int:
        return len(self._replicas)

    def add(self, key: TopicIdPartition, replica: Replica) -> None:
        """Fetch for `replica` too."""
        self._replicas[key] = replica
        self._refusals.pop(key, None)
        self._make_due(key)

    def remove(self, key: TopicIdPartition) -> None:
        """Fetch no more for a partition."""
        self._replicas.pop(key, None)
        self._due.pop(key, None)

    def close(self) -> None:
        """Stop."""
        self._replicas.clear()
        self._due.clear()
        self._link.close()

    def _make_due(self, key: TopicIdPartition) -> None:
        if key in self._replicas:
            self._due[key] = None
            if not self._will_send and not self._backing_off:
                self._will_send = True
                self._broker.after(0, self._send)

    def _send(self) -> None:
        self._will_send = False
        asked: dict[TopicIdPartition, PartitionFetch] = {}
        partitions = []
        for key in self._due:
            replica = self._replicas[key]
            fetch = None if replica.follower is None else replica.follower.next_fetch
            if fetch is not None:
                asked[key] = fetch
                partitions.append((key, fetch, replica.log.log_start_offset))
        self._due.clear()
        if asked:
            request = FollowerFetch(self._broker.broker_id, self._broker.broker_epoch, tuple(partitions))
            self._link.request(
                request,
                FETCH_WAIT_MS + SOCKET_TIMEOUT_MS,
                lambda answer: self._answered(asked, answer),
            )

    def _answered(
        self, asked: dict[TopicIdPartition, PartitionFetch], answer: list[FetchedPartition] | None
    ) -> None:
        if answer is None:
            for key in asked:
                if key in self._replicas:
                    self._due[key] = None
            if not self._backing_off and not self._link.closed:
                self._backing_off = True
                self._broker.after(BACKOFF.pause_ms(self._failures), self._backed_off)
                self._failures += 1
            return
        self._failures = 0
        for fetched in answer:
            fetch = asked.pop(fetched.key)
            replica = self._replicas.get(fetched.key)
            if replica is not None:
                self._take(replica, fetched, fetch)
        for key in asked:
            self._make_due(key)

    def _backed_off(self) -> None:
        self._backing_off = False
        if self._due:
            self._send()

    def _take(self, replica: Replica, fetched: FetchedPartition, fetch: PartitionFetch) -> None:
        key = fetched.key
        before: Any = (replica.log.log_end_offset, replica.high_watermark)
        try:
            advice = replica.take_fetched(
                FetchAnswered(
                    fetch.leader_epoch,
                    fetch.offset,
                    fetched.error_code,
                    fetched.high_watermark,
                    fetched.log_start_offset,
                    fetched.diverging_epoch,
                    len(fetched.records) > 0,
                ),
                fetched.records,
                self._broker.now_ms,
            )
        except (OSError, KafkaError) as error:
            self._broker.world.tell(key, f"{self._broker.name} refused what it fetched: {error}")
            self._rest(key)
            return
        if (replica.log.log_end_offset, replica.high_watermark) != before:
            self._broker.world.followed(self._broker, replica, before)
        if advice is None:
            self._refusals.pop(key, None)
            self._make_due(key)
        elif not isinstance(advice, AwaitMetadata):
            self._rest(key)

    def _rest(self, key: TopicIdPartition) -> None:
        refusals = self._refusals.get(key, 0)
        self._refusals[key] = refusals + 1
        self._broker.after(BACKOFF.pause_ms(refusals), self._make_due, key)
