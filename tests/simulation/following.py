"""What a broker's process does as a follower: the production fetches from each leader, over its replicas.

It stands in for the shell `sparklog.executor.fetching.fetcher`: it sends what may be sent and takes answers
in.
"""

from typing import TYPE_CHECKING, Any, Final

from sparklog.executor.fetching.leader_fetches import FetchLimits, LeaderFetches
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId
from tests.simulation.leading import FETCH_WAIT_MS
from tests.simulation.network import Link

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess

IDLE_FETCH_WAIT_MS: Final = 3_000
SOCKET_TIMEOUT_MS: Final = 3_000


class FetchLoops(RoleListener[Replica]):
    """The fetching of one broker, as `sparklog.executor.fetching.fetchers` does it."""

    def __init__(self, broker: "BrokerProcess") -> None:
        self._broker = broker
        self._loops: dict[BrokerId, FetchLoop] = {}

    def add(self, replica: Replica) -> None:
        """Fetch for `replica` from the leader that it follows now."""
        leader_id = None if replica.follower_state is None else replica.follower_state.leader_id
        if leader_id is not None:
            if leader_id not in self._loops:
                self._loops[leader_id] = FetchLoop(self._broker, leader_id)
            self._loops[leader_id].add(replica)

    def became_follower(self, replica: Replica) -> None:
        self.stopped(replica)
        self.add(replica)

    def stopped(self, replica: Replica) -> None:
        for loop in self._loops.values():
            loop.remove(replica)

    became_leader = deleted = stopped


class FetchLoop:
    """Follows one leader for some partitions."""

    def __init__(self, broker: "BrokerProcess", leader_id: BrokerId) -> None:
        self._broker = broker
        self._link = Link(broker, f"broker-{leader_id}")
        self._fetches = LeaderFetches(
            broker.broker_id,
            FetchLimits(
                max_wait_ms=FETCH_WAIT_MS,
                idle_wait_ms=IDLE_FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=1 << 20,
                partition_max_bytes=broker.world.fetch_max_bytes,
                backoff=ExponentialBackoff(first_ms=20, max_ms=1_000),
            ),
        )
        self._connection = object()
        """Another one whenever the last is lost: what was asked by that is not answered any more."""
        self._backing_off = False
        self._will_send = False

    def add(self, replica: Replica) -> None:
        """Fetch for `replica` too."""
        self._fetches.add(replica)
        self._send_soon()

    def remove(self, replica: Replica) -> None:
        """Fetch no more for `replica`."""
        self._fetches.remove(replica)

    def _send_soon(self) -> None:
        if not self._will_send:
            self._will_send = True
            self._broker.after(0, self._send)

    def _send(self) -> None:
        self._will_send = False
        connection = self._connection
        if self._fetches.replicas and self._fetches.may_send and not self._backing_off:
            timeout_ms = self._fetches.wait_ms + SOCKET_TIMEOUT_MS
            self._link.request(
                self._fetches.next_request(self._broker.broker_epoch),
                timeout_ms,
                lambda response: self._answered(connection, response),
            )

    def _answered(self, connection: object, response: Any) -> None:
        if connection is not self._connection:
            return
        try:
            if response is None:
                self._fail()
            else:
                for replica, answered, records in self._fetches.answered(response):
                    self._take(replica, answered, records)
                if not self._fetches.under_way:
                    # Or the session is over, and with it what was asked behind this request.
                    self._connection = object()
        except KafkaError:
            self._fail()
        self._send()

    def _fail(self) -> None:
        self._connection = object()
        self._backing_off = True
        self._broker.after(self._fetches.failed(), self._backed_off)

    def _backed_off(self) -> None:
        self._backing_off = False
        self._send()

    def _take(self, replica: Replica, answered: Any, records: bytes) -> None:
        broker = self._broker
        before: Any = (replica.log.log_end_offset, replica.high_watermark)
        rest_ms: int | None
        try:
            advice = replica.take_fetched(answered, records, broker.now_ms)
        except (OSError, KafkaError) as error:
            broker.world.tell(replica.key, f"{broker.name} refused what it fetched: {error}")
            rest_ms = self._fetches.refused(replica, broker.now_ms)
        else:
            if (replica.log.log_end_offset, replica.high_watermark) != before:
                broker.world.followed(broker, replica, before)
            rest_ms = self._fetches.taken(replica, advice, broker.now_ms)
        if rest_ms is not None:
            broker.after(rest_ms, self._wake_rested)

    def _wake_rested(self) -> None:
        self._fetches.wake_rested(self._broker.now_ms + 1)
        self._send()
