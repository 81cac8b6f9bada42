"""One partition of an internal topic while its broker coordinates it, from its load to its end.

Between the machine that decides and the log: it appends, replays, waits until what was appended is committed
and tells the replies then, in that order. The rules it keeps:

- What could not be appended changes nothing. What was appended and cannot be replayed closes the partition,
  which its owner loads again: nothing goes on half-applied.
- Replies and effects leave in the order of the decisions, when all that they rest on is committed; at once
  those that rest on nothing. Nothing is told while the machine is at work, as whoever is told may ask for the
  next thing in the same breath.
- Whoever waits is answered: by the machine, when the write takes too long, or when the partition ends.

Pure: time comes with the calls, effects go to `PartitionPort`. Order for the caller: `replay` and
`end_transaction` for every record of the log, then `loaded`; from then on requests and events, and
`committed` whenever the high watermark moves; `close` when it leads no more. Nothing is done after `close`.

Source: Kafka's CoordinatorRuntime, CoordinatorOperationExceptionHelper.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

from sparklog.executor.coordinators.machine.decision import (
    CoordinatorMachine,
    CoordinatorRecord,
    Decision,
    Now,
    ProducerStamp,
    RawReplay,
    Reply,
    Token,
)
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import ErrorCode, KafkaError, kafka_error
from sparklog.protocol.records.key_values import KeyRun
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)

MAX_OPEN_TOKENS: Final = 100_000
"""The most requests of one partition that wait at a time;"""
MAX_WAITING_FOR_OTHERS: Final = MAX_OPEN_TOKENS // 2
"""from so many on there is room only for those that wait for no other client, who may take minutes."""
TICK_AFTER_FAILURE_MS: Final = 1000
"""How long a machine whose `tick` raised is left alone."""

_CODES: Final = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.network_exception: ErrorCode.coordinator_load_in_progress,
}


def coordinator_error(error_code: ErrorCode) -> ErrorCode:
    """Return how a coordinator's client is told of an error of the log under it.

    >>> coordinator_error(ErrorCode.not_leader_or_follower).name
    'not_coordinator'
    """
    return _CODES.get(error_code, error_code)


class CoordinatorState(Enum):
    """The stages in the life of a partition's coordinator."""

    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class PendingRequest(Protocol):
    """A request that waits for its answer: the token by which machines know it. Hashable."""

    def answer(self, response: Any) -> None:
        """Answer with a response."""

    def refuse(self, error_code: ErrorCode) -> None:
        """Answer with an error."""


class PartitionPort(Protocol):
    """The log under a partition, and the way of its effects: its coordinator. Not called after `close`."""

    def append(self, decision: Decision, now: Now) -> Offset:
        """Append a decision's records as one batch; return the offset after it.

        It may move the high watermark.

        Raises:
            KafkaError, OSError: nothing was appended.
        """

    def carry_out(self, effect: Any) -> None:
        """Do what a decision wants done."""

    def broken(self) -> None:
        """What is in the log could not be applied: the partition is closed, and has to be loaded again."""


class _Pending(NamedTuple):
    end_offset: Offset
    """All of it is committed when the high watermark reaches this."""
    deadline_ms: int
    replies: Sequence[Reply]
    effects: Sequence[Any]


class _Refusal(NamedTuple):
    token: Token
    error_code: ErrorCode


class CoordinatorPartition:
    """One machine, the requests that wait for it, and what it has decided that is not committed."""

    def __init__(
        self, name: str, machine: CoordinatorMachine, port: PartitionPort, write_timeout_ms: int
    ) -> None:
        self.state = CoordinatorState.LOADING
        self.machine: Final = machine
        self.end_offset: Offset = 0
        """All below it is replayed."""
        self._name = name
        self._port = port
        self._write_timeout_ms = write_timeout_ms
        self._high_watermark: Offset = 0
        self._open: dict[PendingRequest, None] = {}
        self._pending: deque[_Pending] = deque()
        self._told: deque[Any] = deque()
        """Replies, refusals and effects that are to be told when the machine is not at work."""
        self._tells = False
        """Whether somebody is being told: what comes of that is told behind what is told already."""
        self._missed: list[MetadataDelta] = []
        """How the cluster has changed during the load."""
        self._depth = 0
        self._tick_again_ms = 0

    @property
    def open_count(self) -> int:
        """How many requests wait."""
        return len(self._open)

    @property
    def next_due_ms(self) -> int | None:
        """The monotonic time at which `tick` is wanted next, if it is."""
        if self.state is not CoordinatorState.ACTIVE:
            return None
        due_ms = self.machine.next_due_ms
        if due_ms is not None:
            due_ms = max(due_ms, self._tick_again_ms)
        waiting = next((pending for pending in self._pending if pending.replies), None)
        if waiting is None:
            return due_ms
        return waiting.deadline_ms if due_ms is None else min(due_ms, waiting.deadline_ms)

    # --- the load -------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        """Apply a record of the log."""
        self.machine.replay(record, producer)

    @property
    def replay_raw(self) -> Callable[[KeyRun], bool] | None:
        """What applies records as they lie in the log, if the machine can do that."""
        return self.machine.replay_raw if isinstance(self.machine, RawReplay) else None

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        """Apply a marker of the log."""
        self.machine.end_transaction(producer, committed)

    def loaded(self, end_offset: Offset, high_watermark: Offset, image: MetadataImage, now: Now) -> None:
        """All below `end_offset` was replayed: serve from here on.

        Raises:
            Exception: what the machine's `loaded` raises, which keeps the partition from serving.
        """
        assert self.state is CoordinatorState.LOADING
        self.end_offset = end_offset
        self._high_watermark = high_watermark
        with self._turn():
            self.state = CoordinatorState.ACTIVE
            for decision in self.machine.loaded(image, now):
                self._take(decision, now)
            missed, self._missed = self._missed, []
            for delta in missed:
                self.metadata_changed(image, delta, now)

    # --- what happens ---------------------------------------------------------------------------

    def submit(
        self,
        request: PendingRequest,
        decide: Callable[[Any, Token, Now], Decision],
        now: Now,
        *,
        waits_for_others: bool = False,
    ) -> None:
        """Have the machine decide about a request, which may wait for other clients or for disks alone."""
        if not self._is_taken_in(request, MAX_WAITING_FOR_OTHERS if waits_for_others else MAX_OPEN_TOKENS):
            return
        with self._turn():
            try:
                self._take(decide(self.machine, request, now), now)
            except KafkaError as error:
                self._refuse(request, coordinator_error(error.error_code))
            except Exception:
                logger.exception("%s: a request could not be decided about", self._name)
                self._refuse(request, ErrorCode.unknown_server_error)

    def decide(self, decide: Callable[[Any], Iterable[Decision]], now: Now) -> None:
        """Have the machine decide about an event; what it raises is logged."""
        if self.state is not CoordinatorState.ACTIVE:
            return
        with self._turn():
            try:
                for decision in decide(self.machine):
                    self._take(decision, now)
                    if self.state is not CoordinatorState.ACTIVE:
                        return
            except Exception:
                logger.exception("%s: an event could not be decided about", self._name)

    def metadata_changed(self, image: MetadataImage, delta: MetadataDelta, now: Now) -> None:
        """The cluster is another one; a machine that is loaded hears of it afterwards."""
        if self.state is CoordinatorState.LOADING:
            self._missed.append(delta)
        self.decide(lambda machine: machine.metadata_changed(image, delta, now), now)

    def tick(self, now: Now) -> None:
        """Do what is due, and answer those whose writes take too long."""
        with self._turn():
            self._expire(now)
            due_ms = self.machine.next_due_ms
            if due_ms is None or due_ms > now.monotonic_ms:
                return
            self.decide(lambda machine: machine.tick(now), now)
            due_ms = self.machine.next_due_ms
            if due_ms is not None and due_ms <= now.monotonic_ms:
                late_ms = now.monotonic_ms - due_ms
                logger.error("%s: what was due %d ms ago is due still", self._name, late_ms)
                self._tick_again_ms = now.monotonic_ms + TICK_AFTER_FAILURE_MS

    def append_marker(
        self,
        producer: ProducerStamp,
        committed: bool,
        append: Callable[[], Offset],
        request: PendingRequest,
        now: Now,
    ) -> None:
        """End a producer's transaction: `append` appends its marker, and returns the offset after it.

        The request is answered with None when the marker is committed.
        """
        if not self._is_taken_in(request):
            return
        with self._turn():
            try:
                self._applied(append(), lambda: self.machine.end_transaction(producer, committed))
            except (KafkaError, OSError) as error:
                self._refuse(request, coordinator_error(kafka_error(error).error_code))
            except Exception as error:
                self._break("it is not known whether a marker was appended", error)
            else:
                self._await_commit((Reply(request, None),), (), now)

    def abandon(self, request: PendingRequest) -> None:
        """Nobody waits for the answer any more."""
        self._open.pop(request, None)

    def committed(self, high_watermark: Offset) -> None:
        """All below `high_watermark` is committed: tell what waited for it."""
        if high_watermark <= self._high_watermark or self.state is not CoordinatorState.ACTIVE:
            return
        self._high_watermark = high_watermark
        with self._turn():
            pass

    def close(self) -> None:
        """Serve no more, and send those who wait elsewhere."""
        if self.state is CoordinatorState.CLOSED:
            return
        self.state = CoordinatorState.CLOSED
        del self._port  # in a circle with its owner the files of a partition that went elsewhere stay open
        self._missed.clear()
        self._pending.clear()
        waiting, self._open = self._open, {}
        for request in waiting:
            self._say(request.refuse, ErrorCode.not_coordinator)

    def _is_taken_in(self, request: PendingRequest, most_open: int = MAX_OPEN_TOKENS) -> bool:
        """Have a request wait for its answer, or refuse it at once."""
        if self.state is CoordinatorState.ACTIVE and len(self._open) < most_open:
            self._open[request] = None
            return True
        if self.state is CoordinatorState.LOADING:
            request.refuse(ErrorCode.coordinator_load_in_progress)
        elif self.state is CoordinatorState.CLOSED:
            request.refuse(ErrorCode.not_coordinator)
        else:
            request.refuse(ErrorCode.coordinator_not_available)
        return False

    # --- from decision to answer ----------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let the machine work, and tell what there is to tell when it does so no more."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._tell()

    def _take(self, decision: Decision, now: Now) -> None:
        if self.state is not CoordinatorState.ACTIVE:
            return
        if decision.records:
            assert not decision.at_once, "what is appended is waited for"
            try:
                end_offset = self._port.append(decision, now)
            except (KafkaError, OSError) as error:
                self._append_failed(decision, kafka_error(error), now)
                return
            except Exception as error:
                self._break("it is not known what was appended", error)
                return
            self._applied(end_offset, lambda: self._replay_all(decision))
        if decision.at_once:
            self._told.extend((*decision.replies, *decision.effects))
        elif decision.replies or decision.effects:
            self._await_commit(decision.replies, decision.effects, now)

    def _replay_all(self, decision: Decision) -> None:
        for record in decision.records:
            self.machine.replay(record, decision.producer)

    def _applied(self, end_offset: Offset, apply: Callable[[], None]) -> None:
        """Apply what was appended up to `end_offset`; what fails in that ends the partition."""
        try:
            apply()
        except Exception as error:
            self._break("what was appended cannot be applied", error)
        self.end_offset = end_offset

    def _break(self, why: str, error: Exception) -> None:
        """Go no further, and be loaded again from what the log has."""
        logger.error("%s: %s, it is loaded again", self._name, why, exc_info=error)
        port = self._port
        self.close()
        port.broken()

    def _append_failed(self, decision: Decision, error: KafkaError, now: Now) -> None:
        logger.info("%s: nothing is appended: %s", self._name, error)
        error_code = coordinator_error(error.error_code)
        for reply in decision.replies:
            self._refuse(reply.token, error_code)
        try:
            follow_up = self.machine.append_failed(decision, error_code, now)
        except Exception as error:
            self._break("what could not be appended cannot be undone", error)
            return
        if follow_up is not None:
            assert not follow_up.records, "nothing is appended in place of what could not be"
            self._take(follow_up, now)

    def _await_commit(self, replies: Sequence[Reply], effects: Sequence[Any], now: Now) -> None:
        if self.state is CoordinatorState.ACTIVE:
            deadline_ms = now.monotonic_ms + self._write_timeout_ms
            self._pending.append(_Pending(self.end_offset, deadline_ms, replies, effects))

    def _expire(self, now: Now) -> None:
        """Answer those who have waited too long; what they wrote may still be committed."""
        kept: list[_Pending] = []
        while self._pending and self._pending[0].deadline_ms <= now.monotonic_ms:
            pending = self._pending.popleft()
            for reply in pending.replies:
                self._refuse(reply.token, coordinator_error(ErrorCode.request_timed_out))
            if pending.effects:
                kept.append(pending._replace(replies=()))
        self._pending.extendleft(reversed(kept))

    def _refuse(self, token: Token, error_code: ErrorCode) -> None:
        self._told.append(_Refusal(token, error_code))

    def _tell(self) -> None:
        """Tell what is committed, in order; whoever is told may come back in the same breath.

        Then this is called within itself, and leaves the rest to the first call: thousands may come back.
        """
        if self._tells:
            return
        self._tells = True
        try:
            while (item := self._next_told()) is not None:
                if type(item) is Reply:
                    if self._open.pop(item.token, self) is not self:
                        self._say(item.token.answer, item.response)
                elif type(item) is _Refusal:
                    if self._open.pop(item.token, self) is not self:
                        self._say(item.token.refuse, item.error_code)
                elif self.state is not CoordinatorState.CLOSED:
                    self._say(self._port.carry_out, item)
        finally:
            self._tells = False

    def _next_told(self) -> Any:
        """Take out what is to be told next; None if that is nothing."""
        pending, told = self._pending, self._told
        while pending and pending[0].end_offset <= self._high_watermark:
            _, _, replies, effects = pending.popleft()
            told.extend((*replies, *effects))
        return told.popleft() if told else None

    def _say(self, tell: Callable[..., None], *what: Any) -> None:
        """Tell something; whatever that leads to, the others are told theirs."""
        try:
            tell(*what)
        except Exception:
            logger.exception("%s: an answer or an effect went wrong", self._name)
