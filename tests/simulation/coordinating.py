"""The coordinators of a simulated broker: production's coordinators and machines.

It mirrors the shell `sparklog.executor.coordinators.runtime`: the same steps in the same order, without
asyncio; each partition's coordinator is production's. A log is loaded some batches at a time, and roles
change meanwhile. Clients send the machine's own events.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparklog.executor.coordinators.coordinator import Coordinator
from sparklog.executor.coordinators.coordinator_kind import CoordinatorKind
from sparklog.executor.coordinators.coordinators import group_coordinator
from sparklog.executor.coordinators.groups.machine.group_metrics import GroupMetrics
from sparklog.executor.coordinators.loading import Loading, read_batches, replay_batch
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorResult,
    Now,
    Reply,
    RunInExecutor,
    Token,
)
from sparklog.executor.coordinators.machine.coordinator_partition import (
    CoordinatorPartition,
    CoordinatorState,
)
from sparklog.executor.coordinators.transactions.coordination import transaction_coordinator
from sparklog.executor.coordinators.transactions.machine.events import SendMarkers
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.types import LeaderEpoch, Offset, TopicIdPartition
from tests.simulation.leading import START_MS
from tests.simulation.network import Reply as Answer

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess

IN_SEEDS: Final = (8, 11)
"""Of sixteen: those in which there are coordinators."""
_OF_SEEDS: Final = 16
TRANSACTION_SEEDS: Final = range(27, 27 + 32 * 1_000, 32)
"""The first of those in which there are transactions, too."""
SINK_SEEDS: Final = range(16, 16 + 32 * 1_000, 32)
"""The first of those in which Spark writes exactly once."""
_CLEANED_IN_ONE_OF: Final = 3
MEMBER_SEEDS: Final = range(24, 24 + 32 * 1_000, 32)
"""The first of those in which groups have members, too."""
_ROLLING_OF_THESE: Final = 8
"""In one of how many of these nothing happens but a rolling restart."""
_EXECUTOR_MS: Final = 50
"""How long a thread takes at most for what it is given."""
_READ_BYTES: Final = 300
_MANY_BYTES: Final = 3_000
"""Where coordinators write much."""
_READ_MS: Final = 40
"""How long a read of a load takes at most."""
_NO_EXECUTOR: Any = None
_NO_REQUEST: Any = None


def coordinates(seed: int) -> bool:
    """Whether there are coordinators in a seed."""
    return seed % _OF_SEEDS in IN_SEEDS or has_sinks(seed)


def has_transactions(seed: int) -> bool:
    """Whether there are transactions in a seed."""
    return seed % TRANSACTION_SEEDS.step == TRANSACTION_SEEDS.start


def has_sinks(seed: int) -> bool:
    """Whether Spark writes in a seed, and nobody else."""
    return seed % SINK_SEEDS.step == SINK_SEEDS.start


def cleans_transactions(seed: int) -> bool:
    """Whether logs are cleaned in a seed with transactions."""
    return has_transactions(seed) and seed // TRANSACTION_SEEDS.step % _CLEANED_IN_ONE_OF == 1


def has_members(seed: int) -> bool:
    """Whether there are members of groups in a seed that has coordinators."""
    return seed % MEMBER_SEEDS.step == MEMBER_SEEDS.start


def is_rolling(seed: int) -> bool:
    """Whether nothing happens in a seed with members but that all brokers are restarted, one by one."""
    return seed // MEMBER_SEEDS.step % _ROLLING_OF_THESE == _ROLLING_OF_THESE - 1


class AskCoordinator(NamedTuple):
    """A request for the coordinator that a partition of an internal topic is."""

    topic: str
    partition: int
    event: Any
    decide: Callable[[Any, Any, Token, Now], CoordinatorResult]
    """Given the machine, the event, the token and the time."""
    asker: str = ""
    """Who asks, for the invariants."""


class Coordinated(NamedTuple):
    """The answer: an error of the coordinator's, or what its machine says."""

    error_code: ErrorCode
    response: Any
    leader_epoch: LeaderEpoch
    """Of the coordinator that answered, for the invariants; -1 if none did."""
    key: TopicIdPartition | None
    """Its partition: whoever asks by name may not know yet that another topic has taken the name."""


class Coordinating(RoleListener[Replica]):
    """The coordinators of one broker's process."""

    def __init__(self, broker: "BrokerProcess") -> None:
        self._broker = broker
        config = broker.world.config
        kinds = (
            group_coordinator(config, GroupMetrics()),
            transaction_coordinator(config, broker.marker_sender, broker.new_producer_id),
        )
        self._kinds: dict[str, CoordinatorKind] = {kind.topic: kind for kind in kinds}
        self._coordinators: dict[tuple[str, int], WatchedCoordinator] = {}

    @property
    def is_asked(self) -> bool:
        """Whether there is a coordinator here."""
        return bool(self._coordinators)

    def states(self, topic: str) -> dict[int, CoordinatorState]:
        """Return the state of each coordinator of a topic, by partition."""
        return {
            partition: each.partition.state
            for (name, partition), each in self._coordinators.items()
            if name == topic
        }

    def settled_machine(self, topic: str, partition: int) -> Any:
        """Return a coordinator's machine if all that it knows is committed, else None."""
        coordinator = self._coordinators.get((topic, partition))
        if coordinator is None or not coordinator.partition.is_settled:
            return None
        return coordinator.partition.machine

    def ask(self, message: AskCoordinator, answer: Answer) -> None:
        """Have a coordinator decide."""
        self.submit(Asked(message, answer))

    def submit(self, asked: "Asked") -> Callable[[], None]:
        """Have a coordinator decide; return how to say that nobody waits for the answer any more."""
        coordinator = self._coordinators.get((asked.message.topic, asked.message.partition))
        if coordinator is None:
            asked.refuse(ErrorCode.not_coordinator)
            return lambda: None
        coordinator.submit(asked)
        return partial(coordinator.partition.abandon, asked)

    def complete_group_transaction(
        self, partition: int, end: EndTransactionMarker, answer: Callable[[ErrorCode], None]
    ) -> None:
        """End a producer's transaction in a partition of offsets, as `CoordinatorRuntime` does."""
        coordinator = self._coordinators.get((CONSUMER_OFFSETS_TOPIC, partition))
        if coordinator is None:
            answer(ErrorCode.not_coordinator)
        else:
            coordinator.end_transaction(end, lambda told: answer(told.error_code))

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Tell the machines that the cluster is another one."""
        for coordinator in list(self._coordinators.values()):
            coordinator.partition.metadata_changed(image, delta, self.now())
            self.schedule(coordinator)

    def became_leader(self, replica: Replica) -> None:
        kind = self._kinds.get(replica.topic_partition.topic)
        if kind is None or replica.leadership is None or replica.suspended:
            return
        previous = self._coordinators.get(replica.topic_partition)
        if previous is not None:
            self.drop(previous)
        self._coordinators[replica.topic_partition] = WatchedCoordinator(self, self._broker, replica, kind)

    resumed = became_leader

    def led_on(self, replica: Replica) -> None:
        previous = self._coordinators.get(replica.topic_partition)
        if previous is not None and previous.leads_on(replica):
            self.schedule(previous)
        else:
            self.became_leader(replica)

    def stopped(self, replica: Replica) -> None:
        coordinator = self._coordinators.get(replica.topic_partition)
        if coordinator is not None and coordinator.replica is replica:
            self.drop(coordinator)

    became_follower = suspended = deleted = stopped

    def drop(self, coordinator: "WatchedCoordinator") -> None:
        """End a coordinator."""
        if self._coordinators.get(coordinator.replica.topic_partition) is coordinator:
            del self._coordinators[coordinator.replica.topic_partition]
        coordinator.close()

    # --- what coordinators ask of their runtime ---------------------------------------------------

    def now(self) -> Now:
        """Return both times."""
        return Now(self._broker.now_ms, START_MS + self._broker.scheduler.now_ms)

    def obey_lease(self) -> None:
        """See whether the broker may still coordinate."""
        self._broker.obey_lease()

    def schedule(self, coordinator: Coordinator) -> None:
        """See to it that the partition's `tick` is called in time."""
        assert isinstance(coordinator, WatchedCoordinator)
        due_ms = coordinator.partition.next_due_ms
        if due_ms is not None and (coordinator.due_ms is None or due_ms < coordinator.due_ms):
            coordinator.due_ms = due_ms
            self._broker.after(max(0, due_ms - self._broker.now_ms), self._tick, coordinator, due_ms)

    def _tick(self, coordinator: "WatchedCoordinator", due_ms: int) -> None:
        if coordinator.due_ms != due_ms:
            return
        coordinator.due_ms = None
        self.obey_lease()
        next_due_ms = coordinator.partition.next_due_ms
        if next_due_ms is not None and next_due_ms <= self._broker.now_ms:
            coordinator.partition.tick(self.now())
        self.schedule(coordinator)

    def reload(self, coordinator: Coordinator) -> None:
        """A coordinator could not go on, which nothing that happens here is a reason for."""
        raise AssertionError(f"the coordinator of {coordinator.replica} broke")


class Asked:
    """A request that waits for its coordinator."""

    def __init__(self, message: AskCoordinator, answer: Answer) -> None:
        self.message: Final = message
        self.end_offset: Offset | None = 0
        """All that the answer rests on is below it; None if it rests on nothing that is committed."""
        self.wrote = False
        """Whether it has written something itself."""
        self.coordinator: WatchedCoordinator | None = None
        """The one that was asked; None if there was none."""
        self._answer = answer

    def answer(self, response: Any) -> None:
        """Answer with what the machine says, under the eyes of the observer."""
        coordinator = self.coordinator
        assert coordinator is not None, "without one it is refused"
        broker = coordinator.broker
        # What has just been committed has to be known.
        broker.touched()
        broker.world.coordinated(broker, coordinator.replica, coordinator.leader_epoch, self, response)
        self._answer(Coordinated(ErrorCode.none, response, coordinator.leader_epoch, coordinator.replica.key))

    def refuse(self, error_code: ErrorCode) -> None:
        """Answer with an error."""
        assert error_code is not ErrorCode.unknown_server_error, "a machine raised"
        coordinator = self.coordinator
        if coordinator is None:
            self._answer(Coordinated(error_code, None, -1, None))
        else:
            self._answer(Coordinated(error_code, None, coordinator.leader_epoch, coordinator.replica.key))


class StrictPartition(CoordinatorPartition):
    """Production's partition, which does not get over what its machine raises: that is a finding."""

    def decide(self, decide: Callable[[Any], Iterable[CoordinatorResult]], now: Now) -> None:
        raised: list[Exception] = []

        def watched(machine: Any) -> Iterator[CoordinatorResult]:
            try:
                yield from decide(machine)
            except Exception as error:
                raised.append(error)
                raise

        super().decide(watched, now)
        if raised:
            raise raised[0]

    def _take(self, decision: CoordinatorResult, now: Now) -> None:
        for asked in _askers(decision.replies):
            asked.end_offset = None if decision.at_once else self.end_offset
        super()._take(decision, now)

    def _say(self, tell: Callable[..., None], *what: Any) -> None:
        tell(*what)

    def tick(self, now: Now) -> None:
        super().tick(now)
        if self.state is CoordinatorState.ACTIVE:
            due_ms = self.machine.next_due_ms
            assert due_ms is None or due_ms > now.monotonic_ms, "what was due is due still"


class WatchedCoordinator(Coordinator):
    """Production's coordinator under the eyes of the observer; it loads itself."""

    partition_type = StrictPartition

    def __init__(
        self, runtime: Coordinating, broker: "BrokerProcess", replica: Replica, kind: CoordinatorKind
    ) -> None:
        super().__init__(replica, kind, {**kind.effects, RunInExecutor: self._begin_in_executor}, runtime)
        self.broker: Final = broker
        self.due_ms: int | None = None
        """When its `tick` comes next; None if it does not."""
        self._runtime = runtime
        self._kind = kind
        self._read_later(replica.log.log_start_offset)

    def submit(self, asked: Asked) -> None:
        """Have the machine decide about a request."""
        asked.coordinator = self
        asked.end_offset = self.partition.end_offset
        message = asked.message
        self.partition.submit(asked, message.decide, self._runtime.now(), message.event)
        self._runtime.schedule(self)

    def end_transaction(self, end: EndTransactionMarker, answer: Answer) -> None:
        """Append a marker, and have it obeyed."""
        asked = Asked(
            AskCoordinator(self.replica.topic_partition.topic, self.partition_index, end, _NO_REQUEST), answer
        )
        asked.coordinator = self
        self._asked_marker = asked
        self.complete_transaction(end, asked)

    # --- what the partition wants done ----------------------------------------------------------

    def append(self, decision: CoordinatorResult, now: Now) -> Offset:
        before = self.replica.log.log_end_offset
        end_offset = super().append(decision, now)
        self.broker.world.appended(self.broker, self.replica, before)
        for asked in _askers(decision.replies):
            asked.end_offset, asked.wrote = end_offset, True
        return end_offset

    def append_marker(self, end: EndTransactionMarker, now: Now) -> Offset:
        end_offset = super().append_marker(end, now)
        self._asked_marker.end_offset, self._asked_marker.wrote = end_offset, True
        return end_offset

    def carry_out(self, effect: Any) -> None:
        if isinstance(effect, SendMarkers):
            self.broker.touched()
            self.broker.world.markers_sent(self.broker, self.replica, self.leader_epoch, effect)
        super().carry_out(effect)

    def _begin_in_executor(self, effect: RunInExecutor, coordinator: object) -> None:
        within_ms = self.broker.scheduler.random.randint(1, _EXECUTOR_MS)
        self.broker.after(within_ms, self._done_in_executor, effect)

    def _done_in_executor(self, effect: RunInExecutor) -> None:
        result = effect.function()
        self.decide(lambda machine, now: effect.then(result, now))

    # --- the load -------------------------------------------------------------------------------

    def _read_later(self, offset: Offset) -> None:
        self.broker.after(self.broker.scheduler.random.randint(1, _READ_MS), self._read, offset)

    def _read(self, offset: Offset) -> None:
        if self.partition.state is not CoordinatorState.LOADING:
            return
        log: Any = self.replica.log
        loading = Loading(
            log,
            self._kind.records,
            self._kind.skips_unknown_versions,
            _MANY_BYTES if self.broker.world.transacts or self.broker.world.has_members else _READ_BYTES,
            self._kind.rest_s,
            _NO_EXECUTOR,
        )
        if offset < log.log_end_offset:
            data = read_batches(loading, offset, log.log_end_offset)
            if not data:
                offset = log.log_end_offset
            for position, header in iterate_headers(data):
                offset = header.next_offset
                for _ in replay_batch(loading, self.partition, header, data, position):
                    pass
            self._read_later(offset)
            return
        self._runtime.obey_lease()
        if self.partition.state is CoordinatorState.LOADING:
            self.partition.loaded(
                log.log_end_offset, self.replica.high_watermark, self.broker.image, self._runtime.now()
            )
            self._runtime.schedule(self)


def _askers(replies: Iterable[Reply]) -> Iterable[Asked]:
    return (reply.token for reply in replies)
