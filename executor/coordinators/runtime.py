"""The coordinators of one kind on one broker: one for each partition of their topic that it leads.

The runtime hears of its partitions' roles as a listener and of the cluster as a subscriber. A coordinator is
made and loaded when its partition is led, and closed when that ends, or when the lease is out; requests
meanwhile are sent on. Nothing is decided here: a partition's machine decides, and the order of appends,
replays, replies and effects is that of `machine/coordinator_partition.py`.

Belongs to the event loop. Order for the caller: among the role listeners and the metadata's subscribers
before the first image; `stop` before the replicas are shut down.

Source: Kafka's CoordinatorRuntime, GroupCoordinatorService.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final

from sparklog.clocks import monotonic_ms, wall_clock_ms
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executor.coordinators.coordinator_kind import CoordinatorKind
from sparklog.executor.coordinators.loading import Loading, LoadTurns, load_partition
from sparklog.executor.coordinators.machine.coordinator_partition import (
    CoordinatorPartition,
    CoordinatorState,
)
from sparklog.executor.coordinators.machine.decision import (
    Beside,
    CoordinatorMachine,
    Decision,
    Now,
    ProducerStamp,
    Release,
)
from sparklog.executor.coordinators.machine.missing_leaders import awaits_leader
from sparklog.executor.coordinators.shard_log import ShardLog
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.metadata.partition_for import coordinator_partition
from sparklog.storage.files import may_pass
from sparklog.storage.transaction_markers import EndTransaction
from sparklog.types import LeaderEpoch
from sparklog.wire.requests import Deferred, Response

logger = logging.getLogger(__name__)

_OVER: Final = object()
LOADS_KEPT: Final = 1_000
RETRY_S: Final = 1.0
"""How long after a load that the system refused, or that records were deleted under, it is tried again."""


class CoordinatorRuntime(RoleListener[Replica]):
    """The coordinators of one kind on one broker."""

    def __init__(self, kind: CoordinatorKind, executor: Executor, obey_lease: Callable[[], None]) -> None:
        """`executor` reads logs and does the machines' heavy work; `obey_lease` comes before what time
        does."""
        self.kind: Final = kind
        self.image: MetadataImage = EMPTY_IMAGE
        self._executor = executor
        self._obey_lease = obey_lease
        self._coordinators: dict[int, Coordinator] = {}
        self.failed: set[int] = set()
        """Partitions led here that could not be loaded: nobody coordinates them."""
        self._suspended: set[int] = set()
        """Partitions that this broker leads, as far as it knows, and does not coordinate without a lease."""
        self.loads: deque[tuple[int, int]] = deque(maxlen=LOADS_KEPT)
        """When the last ones were done and how long they took, both in milliseconds."""
        self._load_turns = LoadTurns()
        self._releases = asyncio.Lock()
        """For a slice of what a closed partition lets go of; loads do not wait for that."""
        self._tasks: set[asyncio.Future[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # --- requests -------------------------------------------------------------------------------

    def submit(
        self,
        key: str,
        decide: Callable[[Any, Any, Now], Decision],
        refuse: Callable[[ErrorCode], Response],
        *,
        waits_for_others: bool = False,
    ) -> Deferred:
        """Have the coordinator of `key` (a group id, a transactional id) decide about a request.

        `decide(machine, token, now)` is called at once, if there is such a coordinator here and it is loaded.
        Of requests that wait for other clients it takes fewer.
        """
        try:
            found = coordinator_partition(self.image, self.kind.topic, key)
        except KafkaError as error:
            refused = Deferred()
            refused.complete(refuse(error.error_code))
            return refused
        partition = -1 if found is None else found[0]
        return self.submit_to(partition, decide, refuse, waits_for_others=waits_for_others)

    def submit_to(
        self,
        partition: int,
        decide: Callable[[Any, Any, Now], Decision],
        refuse: Callable[[ErrorCode], Response],
        *,
        waits_for_others: bool = False,
    ) -> Deferred:
        """Have the coordinator of a partition of the topic decide about a request."""
        token = OpenRequest(refuse)
        coordinator = self._coordinators.get(partition)
        if coordinator is None:
            token.answer(refuse(ErrorCode.not_coordinator))
        else:
            token.deferred.on_abandoned = partial(coordinator.partition.abandon, token)
            coordinator.partition.submit(token, decide, now(), waits_for_others=waits_for_others)
            self._schedule(coordinator)
        return token.deferred

    def complete_transaction(
        self, partition: int, end: EndTransaction, answer: Callable[[ErrorCode], None]
    ) -> None:
        """End a producer's transaction in a partition of the topic: append its marker, and have it obeyed.

        `answer` hears when the marker is committed, or why it is not.
        """
        token = OpenRequest(lambda error_code: error_code)
        token.deferred.bind(lambda error_code: answer(error_code or ErrorCode.none))
        coordinator = self._coordinators.get(partition)
        if coordinator is None:
            token.answer(ErrorCode.not_coordinator)
        else:
            coordinator.complete_transaction(end, token)
            self._schedule(coordinator)

    @property
    def partitions(self) -> dict[int, CoordinatorState]:
        """The state of each coordinator on this broker, by partition."""
        return {number: each.partition.state for number, each in self._coordinators.items()}

    def is_complete(self) -> bool:
        """Whether all that is coordinated anywhere is coordinated here or by another broker.

        It is not while the lease of this broker is out, or while a partition of the topic awaits its leader.
        """
        self._obey_lease()
        return not self._suspended and not awaits_leader(self.image, self.kind.topic)

    @property
    def open_count(self) -> int:
        """How many requests wait."""
        return sum(each.partition.open_count for each in self._coordinators.values())

    def machines(self) -> Iterator[CoordinatorMachine]:
        """Iterate over the machines that are loaded; to look at only."""
        for each in self._coordinators.values():
            if each.partition.state is CoordinatorState.ACTIVE:
                yield each.partition.machine

    # --- roles ----------------------------------------------------------------------------------

    def became_leader(self, replica: Replica) -> None:
        """Load, in a new leader epoch."""
        self._begin(replica)

    def resumed(self, replica: Replica) -> None:
        """Load anew: sessions have run out meanwhile that nobody could prolong."""
        self._begin(replica)

    def became_follower(self, replica: Replica) -> None:
        """Another broker coordinates."""
        self._end(replica)

    def stopped(self, replica: Replica) -> None:
        """Nobody coordinates here."""
        self._end(replica)

    def suspended(self, replica: Replica) -> None:
        """Another broker may coordinate."""
        self._end(replica)
        if replica.topic_partition.topic == self.kind.topic and replica.leader is not None:
            self._suspended.add(replica.topic_partition.partition)

    def deleted(self, replica: Replica) -> None:
        """Another broker coordinates, or nobody."""
        self._end(replica)

    def _begin(self, replica: Replica) -> None:
        if replica.topic_partition.topic != self.kind.topic or replica.leader is None:
            return
        if replica.suspended:
            self._suspended.add(replica.topic_partition.partition)
            return
        self._suspended.discard(replica.topic_partition.partition)
        self.failed.discard(replica.topic_partition.partition)
        previous = self._coordinators.get(replica.topic_partition.partition)
        if previous is not None:
            self._drop(previous)
        coordinator = Coordinator(self, replica)
        self._coordinators[coordinator.partition_index] = coordinator
        coordinator.loading = self._start(self._load(coordinator))

    def _end(self, replica: Replica) -> None:
        if replica.topic_partition.topic != self.kind.topic:
            return
        self._suspended.discard(replica.topic_partition.partition)
        self.failed.discard(replica.topic_partition.partition)
        coordinator = self._coordinators.get(replica.topic_partition.partition)
        if coordinator is not None and coordinator.replica is replica:
            self._drop(coordinator)

    def _drop(self, coordinator: "Coordinator") -> None:
        if self._coordinators.get(coordinator.partition_index) is coordinator:
            del self._coordinators[coordinator.partition_index]
        coordinator.close()
        machine = coordinator.partition.machine
        if isinstance(machine, Release):
            self._start(self._release(machine))

    async def _release(self, machine: Release) -> None:
        """Have a machine let go of what it holds, as considerately as it was loaded."""
        slices = machine.release()
        is_over = False
        while not is_over:
            async with self._releases:
                is_over = next(slices, _OVER) is _OVER
                await asyncio.sleep(self.kind.rest_s)

    async def stop(self) -> None:
        """Close every coordinator, and return when nothing of this is under way any more."""
        if self._timer is not None:
            self._timer.cancel()
        for coordinator in list(self._coordinators.values()):
            self._drop(coordinator)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self, coordinator: "Coordinator") -> None:
        replica, partition = coordinator.replica, coordinator.partition
        kind = self.kind
        queued_ms = monotonic_ms()
        loading = Loading(
            replica.log,
            kind.records,
            kind.skips_unknown_versions,
            kind.load_buffer_bytes,
            kind.rest_s,
            self._executor,
        )
        try:
            count = await load_partition(loading, partition, self._load_turns)
            self._obey_lease()
            if partition.state is not CoordinatorState.LOADING:
                return
            partition.loaded(replica.log.log_end_offset, replica.high_watermark, self.image, now())
        except Exception as error:
            if isinstance(error, KafkaError | OSError):
                replica.fail_if_storage(error)
            if may_pass(error) or _is_of_moved_start(error):
                logger.warning("%s: its coordinator cannot be loaded for now: %s", replica, error)
                await asyncio.sleep(RETRY_S)
                self.reload(coordinator)
                return
            # As in Kafka, such a partition is coordinated by nobody until somebody else leads it.
            logger.exception("%s: its coordinator cannot be loaded", replica)
            if (
                self._coordinators.get(coordinator.partition_index) is coordinator
            ):  # else it is led here no more
                self._drop(coordinator)
                self.failed.add(coordinator.partition_index)
            return
        self.loads.append((monotonic_ms(), monotonic_ms() - queued_ms))
        level = logging.INFO if count else logging.DEBUG
        logger.log(level, "%s: %d records loaded in %d ms", replica, count, monotonic_ms() - queued_ms)
        self._schedule(coordinator)

    def reload(self, coordinator: "Coordinator") -> None:
        """A coordinator broke, or loaded only half: make another one of what is in the log."""
        if self._coordinators.get(coordinator.partition_index) is coordinator:
            self._begin(coordinator.replica)

    # --- metadata and time ----------------------------------------------------------------------

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Tell the machines that the cluster is another one."""
        self.image = image
        for coordinator in list(self._coordinators.values()):
            coordinator.partition.metadata_changed(image, delta, now())
            self._schedule(coordinator)

    def _schedule(self, coordinator: "Coordinator") -> None:
        """See to it that the partition's `tick` is called in time."""
        due_ms = coordinator.partition.next_due_ms
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_s = max(0, due_ms - monotonic_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._obey_lease()
            for coordinator in list(self._coordinators.values()):
                due_ms = coordinator.partition.next_due_ms
                if due_ms is not None and due_ms <= monotonic_ms():
                    coordinator.partition.tick(now())
        finally:  # whatever has gone wrong, time goes on
            for coordinator in list(self._coordinators.values()):
                self._schedule(coordinator)

    # --- effects --------------------------------------------------------------------------------

    def carry_out(self, effect: Any, coordinator: "Coordinator") -> None:
        """Do what a machine wants done."""
        if isinstance(effect, Beside):
            self._start(self._beside(effect, coordinator))
        else:
            self.kind.carry_out(effect, coordinator)

    async def _beside(self, effect: Beside, coordinator: "Coordinator") -> None:
        result: Any
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._executor, effect.function)
        except Exception as error:
            logger.exception("%s: what was to be done beside it failed", coordinator.replica)
            result = error
        coordinator.decide(lambda machine, now: effect.then(result, now))

    def decided(self, coordinator: "Coordinator") -> None:
        """A coordinator has decided something outside of any request."""
        self._schedule(coordinator)

    def obey_lease(self) -> None:
        """See whether this broker may still coordinate."""
        self._obey_lease()

    def _start(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class Coordinator:
    """The coordinator that one partition is: what its effects are given, and by what they come back to it."""

    def __init__(self, runtime: CoordinatorRuntime, replica: Replica) -> None:
        kind = runtime.kind
        assert replica.leader_epoch is not None, "it leads"
        self.replica: Final = replica
        self.leader_epoch: Final[LeaderEpoch] = replica.leader_epoch
        """Of the partition: Kafka's coordinator epoch."""
        self.loading: asyncio.Task[None] | None = None
        self._runtime = runtime
        machine = kind.new_machine(replica.topic_partition.partition)
        self._log = ShardLog(replica, self.leader_epoch, kind.codec, self)
        self.partition: Final = CoordinatorPartition(str(replica), machine, self._log, kind.write_timeout_ms)
        replica.progress.add_reader(self._log)

    @property
    def partition_index(self) -> int:
        """The partition of the internal topic."""
        return self.replica.topic_partition.partition

    def decide(self, decide: Callable[[Any, Now], Decision | None]) -> None:
        """Have the machine decide about what an effect led to; nothing happens once it is closed."""
        self._runtime.obey_lease()
        at = now()

        def decisions(machine: Any) -> list[Decision]:
            decision = decide(machine, at)
            return [] if decision is None else [decision]

        self.partition.decide(decisions, at)
        self._runtime.decided(self)

    def complete_transaction(self, end: EndTransaction, token: "OpenRequest") -> None:
        """Append a marker, and have it obeyed."""
        at = now()
        producer = ProducerStamp(end.producer_id, end.producer_epoch)
        append = partial(self._log.append_marker, end, at)
        self.partition.append_marker(producer, end.committed, append, token, at)

    def carry_out(self, effect: Any) -> None:
        """Do what the machine wants done."""
        self._runtime.carry_out(effect, self)

    def broken(self) -> None:
        """It could not go on: load another."""
        asyncio.get_running_loop().call_soon(self._runtime.reload, self)

    def committed(self) -> None:
        """The partition's high watermark may have moved."""
        self.partition.committed(self.replica.high_watermark)

    def close(self) -> None:
        """Close it."""
        self.replica.progress.remove_reader(self._log)
        if self.loading is not None:
            self.loading.cancel()
        self.partition.close()


class OpenRequest:
    """A request that waits for its coordinator: the token by which machines know it."""

    __slots__ = ("deferred", "refuse")

    def __init__(self, refuse: Callable[[ErrorCode], Response]) -> None:
        self.deferred = Deferred()
        self.refuse = refuse

    def answer(self, response: Response) -> None:
        """Give the answer."""
        self.deferred.complete(response)


def _is_of_moved_start(error: Exception) -> bool:
    """Whether a log begins behind what was to be read: older records were deleted meanwhile."""
    return isinstance(error, KafkaError) and error.error_code is ErrorCode.offset_out_of_range


def now() -> Now:
    """Return both times."""
    return Now(monotonic_ms(), wall_clock_ms())
