"""The coordinators of one kind on one broker: one for each partition of their topic that it leads.

The runtime listens to its partitions' roles and subscribes to metadata. A coordinator is made and loaded when
its partition is led, and closed when leadership or the lease ends; requests are then refused with an error
that redirects the client. The runtime decides nothing: a partition's machine decides, and the order of
appends, replays, replies and effects is that of `machine/coordinator_partition.py`.

Belongs to the event loop. Order for the caller: register as role listener and as subscriber before the first
image; `stop` before the replicas are shut down.

Source: Kafka's CoordinatorRuntime, GroupCoordinatorService.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, TypeVarTuple

from sparklog.executor.coordinators.coordinator import Coordinator
from sparklog.executor.coordinators.coordinator_kind import CarryOut, CoordinatorKind, EffectOrigin
from sparklog.executor.coordinators.loading import Loading, LoadLimits, load_partition
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorMachine,
    CoordinatorResult,
    Now,
    Release,
    RunInExecutor,
)
from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorState
from sparklog.executor.coordinators.machine.missing_leaders import awaits_leader
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.partition_for import coordinator_partition
from sparklog.node.serving.requests import Deferred, Response
from sparklog.node.storage.files import is_transient
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_Event = TypeVarTuple("_Event")

_OVER: Final = object()
LOADS_KEPT: Final = 1_000
RETRY_S: Final = 1.0
"""Delay before the retry of a load that failed with a transient error or lost its offset to a deletion."""


class CoordinatorRuntime(RoleListener[Replica]):
    def __init__(self, kind: CoordinatorKind, executor: Executor, obey_lease: Callable[[], None]) -> None:
        """`executor` reads logs and does heavy work; `obey_lease` comes before work without a request."""
        self.kind: Final = kind
        self.image: MetadataImage = EMPTY_IMAGE
        self.obey_lease: Final = obey_lease
        self._executor = executor
        self._effects: Mapping[type[Any], CarryOut] = {**kind.effects, RunInExecutor: self._begin_in_executor}
        self._coordinators: dict[int, Coordinator] = {}
        self._loading: dict[Coordinator, asyncio.Task[None]] = {}
        self.failed: set[int] = set()
        """Partitions led here whose load failed; they have no coordinator."""
        self._suspended: set[int] = set()
        """Partitions that this broker believes to lead, without a coordinator because the lease is out."""
        self.loads: deque[tuple[int, int]] = deque(maxlen=LOADS_KEPT)
        """Time at the end and duration of the latest loads, both in milliseconds."""
        self._load_limits = LoadLimits()
        self._releases = asyncio.Lock()
        """Held for a slice of a closed machine's release; loads do not wait for it."""
        self._tasks: set[asyncio.Future[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # --- requests -------------------------------------------------------------------------------

    def submit(
        self,
        key: str,
        decide: Callable[[Any, *_Event, Any, Now], CoordinatorResult],
        refuse: Callable[[ErrorCode], Response],
        *event: *_Event,
        waits_for_others: bool = False,
    ) -> Deferred:
        """Submit a request to the coordinator of `key` (a group id or a transactional id).

        `decide(machine, *event, token, now)` is called at once if that coordinator is here and loaded. Fewer
        requests may be open if they wait for other clients.
        """
        try:
            partition = self._partition_of(key)
        except KafkaError as error:
            refused = Deferred()
            refused.complete(refuse(error.error_code))
            return refused
        return self.submit_to(partition, decide, refuse, *event, waits_for_others=waits_for_others)

    def submit_to(
        self,
        partition: int,
        decide: Callable[[Any, *_Event, Any, Now], CoordinatorResult],
        refuse: Callable[[ErrorCode], Response],
        *event: *_Event,
        waits_for_others: bool = False,
    ) -> Deferred:
        request = _OpenRequest(refuse)
        coordinator = self._coordinators.get(partition)
        if coordinator is None:
            request.refuse(ErrorCode.not_coordinator)
        else:
            request.deferred.on_abandoned = partial(coordinator.partition.abandon, request)
            coordinator.partition.submit(
                request, decide, self.now(), *event, waits_for_others=waits_for_others
            )
            self.schedule(coordinator)
        return request.deferred

    def read(
        self,
        key: str,
        decide: Callable[[Any, *_Event, Any, Now], CoordinatorResult],
        refuse: Callable[[ErrorCode], Response],
        *event: *_Event,
    ) -> Deferred | Response:
        """Submit a request that writes nothing to the coordinator of `key`; return its reply if it is due."""
        try:
            partition = self._partition_of(key)
        except KafkaError as error:
            return refuse(error.error_code)
        return self.read_from(partition, decide, refuse, *event)

    def read_from(
        self,
        partition: int,
        decide: Callable[[Any, *_Event, Any, Now], CoordinatorResult],
        refuse: Callable[[ErrorCode], Response],
        *event: *_Event,
    ) -> Deferred | Response:
        """Submit a request that writes nothing; return its reply if it depends on no uncommitted record.

        Without the bookkeeping of a request that waits, such a read takes a third of the CPU.
        """
        coordinator = self._coordinators.get(partition)
        if coordinator is None or not coordinator.partition.is_settled:
            return self.submit_to(partition, decide, refuse, *event)
        [reply] = decide(coordinator.partition.machine, *event, None, self.now()).replies
        return reply.response

    def complete_transaction(
        self, partition: int, end: EndTransactionMarker, answer: Callable[[ErrorCode], None]
    ) -> None:
        """End a producer's transaction in a partition of the topic: append its marker and apply it.

        `answer` is called when the marker is committed, or with the error.
        """
        coordinator = self._coordinators.get(partition)
        if coordinator is None:
            answer(ErrorCode.not_coordinator)
        else:
            coordinator.complete_transaction(end, _OpenMarker(answer))

    @property
    def partitions(self) -> dict[int, CoordinatorState]:
        return {number: each.partition.state for number, each in self._coordinators.items()}

    def is_complete(self) -> bool:
        """Whether every coordinator of the topic is either here or on another broker.

        False while the lease of this broker is out, or while a partition of the topic awaits its leader.
        """
        self.obey_lease()
        return not self._suspended and not awaits_leader(self.image, self.kind.topic)

    @property
    def open_count(self) -> int:
        return sum(each.partition.open_count for each in self._coordinators.values())

    def machines(self) -> Iterator[CoordinatorMachine]:
        """Iterate over the loaded machines, for reading only."""
        for each in self._coordinators.values():
            if each.partition.state is CoordinatorState.ACTIVE:
                yield each.partition.machine

    def _partition_of(self, key: str) -> int:
        """Return the partition of a key; -1 while the topic does not exist.

        Raises:
            KafkaError: no record can name the key.
        """
        found = coordinator_partition(self.image, self.kind.topic, key)
        return -1 if found is None else found[0]

    # --- roles ----------------------------------------------------------------------------------

    def became_leader(self, replica: Replica) -> None:
        """Load the partition in its new leader epoch."""
        self._begin(replica)

    def led_on(self, replica: Replica) -> None:
        """Keep the coordinator in the new leader epoch, or load the partition again."""
        coordinator = self._coordinators.get(replica.topic_partition.partition)
        if coordinator is not None and coordinator.leads_on(replica):
            self.schedule(coordinator)
        else:
            self._begin(replica)

    def resumed(self, replica: Replica) -> None:
        """Reload the partition: sessions expired while members could not prolong them."""
        self._begin(replica)

    def suspended(self, replica: Replica) -> None:
        """Close the coordinator: without a lease, another broker may coordinate."""
        self._end(replica)
        if replica.topic_partition.topic == self.kind.topic and replica.leadership is not None:
            self._suspended.add(replica.topic_partition.partition)

    def _begin(self, replica: Replica) -> None:
        if replica.topic_partition.topic != self.kind.topic or replica.leadership is None:
            return
        if replica.suspended:
            self._suspended.add(replica.topic_partition.partition)
            return
        self._suspended.discard(replica.topic_partition.partition)
        self.failed.discard(replica.topic_partition.partition)
        previous = self._coordinators.get(replica.topic_partition.partition)
        if previous is not None:
            self._drop(previous)
        coordinator = Coordinator(replica, self.kind, self._effects, self)
        self._coordinators[coordinator.partition_index] = coordinator
        self._loading[coordinator] = loading = self._start(self._load(coordinator))
        loading.add_done_callback(lambda _: self._loading.pop(coordinator, None))

    def _end(self, replica: Replica) -> None:
        if replica.topic_partition.topic != self.kind.topic:
            return
        self._suspended.discard(replica.topic_partition.partition)
        self.failed.discard(replica.topic_partition.partition)
        coordinator = self._coordinators.get(replica.topic_partition.partition)
        if coordinator is not None and coordinator.replica is replica:
            self._drop(coordinator)

    became_follower = stopped = deleted = _end

    def _drop(self, coordinator: Coordinator) -> None:
        if self._coordinators.get(coordinator.partition_index) is coordinator:
            del self._coordinators[coordinator.partition_index]
        if (loading := self._loading.get(coordinator)) is not None:
            loading.cancel()
        coordinator.close()
        machine = coordinator.partition.machine
        if isinstance(machine, Release):
            self._start(self._release(machine))

    async def _release(self, machine: Release) -> None:
        """Let a machine release its memory in slices with pauses, as it was loaded."""
        slices = machine.release()
        is_over = False
        while not is_over:
            async with self._releases:
                is_over = next(slices, _OVER) is _OVER
                await asyncio.sleep(self.kind.rest_s)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for coordinator in list(self._coordinators.values()):
            self._drop(coordinator)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self, coordinator: Coordinator) -> None:
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
            count = await load_partition(loading, partition, self._load_limits)
            self.obey_lease()
            if partition.state is not CoordinatorState.LOADING:
                return
            partition.loaded(replica.log.log_end_offset, replica.high_watermark, self.image, self.now())
        except Exception as error:
            if isinstance(error, KafkaError | OSError):
                replica.fail_if_storage(error)
            if is_transient(error) or _is_of_moved_start(error):
                logger.warning(
                    "%s: coordinator cannot be loaded yet, the load is retried: %s", replica, error
                )
                await asyncio.sleep(RETRY_S)
                self._reload(coordinator)
                return
            # As in Kafka, the partition has no coordinator until another broker leads it.
            logger.exception("%s: coordinator cannot be loaded", replica)
            if (
                self._coordinators.get(coordinator.partition_index) is coordinator
            ):  # else another coordinator replaced it
                self._drop(coordinator)
                self.failed.add(coordinator.partition_index)
            return
        self.loads.append((monotonic_ms(), monotonic_ms() - queued_ms))
        level = logging.INFO if count else logging.DEBUG
        logger.log(level, "%s: %d records loaded in %d ms", replica, count, monotonic_ms() - queued_ms)
        self.schedule(coordinator)

    def reload(self, coordinator: Coordinator) -> None:
        asyncio.get_running_loop().call_soon(self._reload, coordinator)

    def _reload(self, coordinator: Coordinator) -> None:
        if self._coordinators.get(coordinator.partition_index) is coordinator:
            self._begin(coordinator.replica)

    # --- metadata and time ----------------------------------------------------------------------

    def now(self) -> Now:
        return Now(monotonic_ms(), wall_clock_ms())

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.image = image
        for coordinator in list(self._coordinators.values()):
            coordinator.partition.metadata_changed(image, delta, self.now())
            self.schedule(coordinator)

    def schedule(self, coordinator: Coordinator) -> None:
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
            self.obey_lease()
            for coordinator in list(self._coordinators.values()):
                due_ms = coordinator.partition.next_due_ms
                if due_ms is not None and due_ms <= monotonic_ms():
                    coordinator.partition.tick(self.now())
        finally:  # a failed tick must not stop the timer
            for coordinator in list(self._coordinators.values()):
                self.schedule(coordinator)

    # --- effects --------------------------------------------------------------------------------

    def _begin_in_executor(self, effect: RunInExecutor, coordinator: EffectOrigin) -> None:
        self._start(self._run_in_executor(effect, coordinator))

    async def _run_in_executor(self, effect: RunInExecutor, coordinator: EffectOrigin) -> None:
        result: Any
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._executor, effect.function)
        except Exception as error:
            logger.exception("%s-%d: background work failed", self.kind.topic, coordinator.partition_index)
            result = error
        coordinator.decide(lambda machine, now: effect.then(result, now))

    def _start(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _OpenRequest:
    __slots__ = ("_refusal", "deferred")

    def __init__(self, refusal: Callable[[ErrorCode], Response]) -> None:
        self.deferred = Deferred()
        self._refusal = refusal

    def answer(self, response: Response) -> None:
        self.deferred.complete(response)

    def refuse(self, error_code: ErrorCode) -> None:
        self.deferred.complete(self._refusal(error_code))


class _OpenMarker:
    __slots__ = ("refuse",)

    def __init__(self, answer: Callable[[ErrorCode], None]) -> None:
        self.refuse = answer

    def answer(self, response: None) -> None:
        self.refuse(ErrorCode.none)


def _is_of_moved_start(error: Exception) -> bool:
    """Whether the requested offset is below the log start offset: records were deleted during the load."""
    return isinstance(error, KafkaError) and error.error_code is ErrorCode.offset_out_of_range
