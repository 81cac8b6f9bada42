"""One partition of an internal topic while its broker coordinates it, from its load to its end.

It stands between the machine that decides and the log: it appends, replays, waits until the records are
committed and then sends the replies, in that order. The rules:

- Records that could not be appended change nothing. Records that were appended but cannot be replayed close
  the partition, and its owner reloads it: no half-applied decision remains.

- Replies and effects leave in the order of the decisions, when all records they depend on are committed;
  without such records, at once. They leave only after the machine has returned, as a client may send its next
  request from within the callback.

- Every request is answered: by the machine, when the write times out, or when the partition ends.

Pure: time comes with the calls, effects go to `PartitionPort`. Order for the caller: `replay` and
`end_transaction` for every record of the log, then `loaded`; from then on requests and events, and
`committed` whenever the high watermark moves; `close` when leadership ends. Calls after `close` have no
effect.

Source: Kafka's CoordinatorRuntime, CoordinatorOperationExceptionHelper.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol, TypeVarTuple

from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorMachine,
    CoordinatorRecord,
    CoordinatorResult,
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

Event = TypeVarTuple("Event")

MAX_OPEN_TOKENS: Final = 100_000
"""The most requests of one partition that wait at a time."""
MAX_WAITING_FOR_OTHERS: Final = MAX_OPEN_TOKENS // 2
"""From so many open requests on, none is accepted that waits for other clients: those take minutes."""
TICK_AFTER_FAILURE_MS: Final = 1000
"""Delay after a `tick` that raised."""

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
    """Return the error that a coordinator's client receives for an error of the underlying log.

    >>> coordinator_error(ErrorCode.not_leader_or_follower).name
    'not_coordinator'
    """
    return _CODES.get(error_code, error_code)


class CoordinatorState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class PendingRequest(Protocol):
    """A request that awaits its reply: the token that machines know it by. Hashable."""

    def answer(self, response: Any) -> None: ...

    def refuse(self, error_code: ErrorCode) -> None: ...


class PartitionPort(Protocol):
    """The coordinator of a partition: its log, and the executor of its effects. Not called after `close`."""

    def append(self, decision: CoordinatorResult, now: Now) -> Offset:
        """Append a decision's records as one batch; return the offset after it.

        It may move the high watermark.

        Raises:
            KafkaError, OSError: nothing was appended.
        """

    def carry_out(self, effect: Any) -> None: ...

    def broken(self) -> None:
        """Reload the partition, which is closed: appended records could not be applied."""


class _Pending(NamedTuple):
    end_offset: Offset
    """The records are committed when the high watermark reaches this."""
    deadline_ms: int
    replies: Sequence[Reply]
    effects: Sequence[Any]


class _Refusal(NamedTuple):
    token: Token
    error_code: ErrorCode


class CoordinatorPartition:
    """One machine, the requests that await it, and its decisions that are not committed."""

    def __init__(
        self, name: str, machine: CoordinatorMachine, port: PartitionPort, write_timeout_ms: int
    ) -> None:
        self.state = CoordinatorState.LOADING
        self.machine: Final = machine
        self.end_offset: Offset = 0
        """End of the replayed records, exclusive."""
        self._name = name
        self._port = port
        self._write_timeout_ms = write_timeout_ms
        self._high_watermark: Offset = 0
        self._open: dict[PendingRequest, None] = {}
        self._pending: deque[_Pending] = deque()
        self._outgoing: deque[Any] = deque()
        """Replies, refusals and effects that leave once the machine has returned."""
        self._is_sending = False
        """Whether an answer is being sent: further answers are queued behind it."""
        self._missed: list[MetadataDelta] = []
        """Deltas of the metadata that arrived during the load."""
        self._depth = 0
        self._tick_again_ms = 0

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def next_due_ms(self) -> int | None:
        """Monotonic time of the next `tick`; None if there is none."""
        if self.state is not CoordinatorState.ACTIVE:
            return None
        due_ms = self.machine.next_due_ms
        if due_ms is not None:
            due_ms = max(due_ms, self._tick_again_ms)
        waiting = next((pending for pending in self._pending if pending.replies), None)
        if waiting is None:
            return due_ms
        return waiting.deadline_ms if due_ms is None else min(due_ms, waiting.deadline_ms)

    @property
    def is_settled(self) -> bool:
        """Whether it serves, and all records that the machine knows are committed.

        A reply to a request without records leaves at once then.
        """
        return self.state is CoordinatorState.ACTIVE and self.end_offset <= self._high_watermark

    # --- the load -------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        self.machine.replay(record, producer)

    @property
    def replay_raw(self) -> Callable[[KeyRun], bool] | None:
        """The machine's replay of undecoded records; None if it has none."""
        return self.machine.replay_raw if isinstance(self.machine, RawReplay) else None

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        self.machine.end_transaction(producer, committed)

    def loaded(self, end_offset: Offset, high_watermark: Offset, image: MetadataImage, now: Now) -> None:
        """Begin to serve: all records below `end_offset` are replayed.

        Raises:
            Exception: the machine's `loaded` raised; the partition does not serve.
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
        decide: Callable[[Any, *Event, Token, Now], CoordinatorResult],
        now: Now,
        *event: *Event,
        waits_for_others: bool = False,
    ) -> None:
        """Let the machine decide about a request: `decide` is a method of its class.

        `waits_for_others` marks requests that wait for other clients, not only for the log.
        """
        if not self._is_taken_in(request, MAX_WAITING_FOR_OTHERS if waits_for_others else MAX_OPEN_TOKENS):
            return
        with self._turn():
            try:
                self._take(decide(self.machine, *event, request, now), now)
            except KafkaError as error:
                self._refuse(request, coordinator_error(error.error_code))
            except Exception:
                logger.exception("%s: a request failed in the coordinator", self._name)
                self._refuse(request, ErrorCode.unknown_server_error)

    def decide(self, decide: Callable[[Any], Iterable[CoordinatorResult]], now: Now) -> None:
        """Let the machine decide about an event; exceptions are logged."""
        if self.state is not CoordinatorState.ACTIVE:
            return
        with self._turn():
            try:
                for decision in decide(self.machine):
                    self._take(decision, now)
                    if self.state is not CoordinatorState.ACTIVE:
                        return
            except Exception:
                logger.exception("%s: an event failed in the coordinator", self._name)

    def metadata_changed(self, image: MetadataImage, delta: MetadataDelta, now: Now) -> None:
        """Pass the new metadata to the machine; during the load the delta is kept for later."""
        if self.state is CoordinatorState.LOADING:
            self._missed.append(delta)
        self.decide(lambda machine: machine.metadata_changed(image, delta, now), now)

    def tick(self, now: Now) -> None:
        """Run timers that are due, and refuse requests whose writes have timed out."""
        with self._turn():
            self._expire(now)
            due_ms = self.machine.next_due_ms
            if due_ms is None or due_ms > now.monotonic_ms:
                return
            self.decide(lambda machine: machine.tick(now), now)
            due_ms = self.machine.next_due_ms
            if due_ms is not None and due_ms <= now.monotonic_ms:
                late_ms = now.monotonic_ms - due_ms
                logger.error("%s: timer overdue by %d ms", self._name, late_ms)
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
                self._break("unknown whether a transaction marker was appended", error)
            else:
                self._await_commit((Reply(request, None),), (), now)

    def abandon(self, request: PendingRequest) -> None:
        """Forget a request whose client no longer waits."""
        self._open.pop(request, None)

    def committed(self, high_watermark: Offset) -> None:
        if high_watermark <= self._high_watermark or self.state is not CoordinatorState.ACTIVE:
            return
        self._high_watermark = high_watermark
        with self._turn():
            pass

    def close(self) -> None:
        """Stop serving and refuse all open requests with not_coordinator."""
        if self.state is CoordinatorState.CLOSED:
            return
        self.state = CoordinatorState.CLOSED
        del self._port  # a reference cycle with the owner would keep the files of a moved partition open
        self._missed.clear()
        self._pending.clear()
        waiting, self._open = self._open, {}
        for request in waiting:
            self._say(request.refuse, ErrorCode.not_coordinator)

    def _is_taken_in(self, request: PendingRequest, most_open: int = MAX_OPEN_TOKENS) -> bool:
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
        """Run the machine; after the outermost turn, send replies and effects."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._send()

    def _take(self, decision: CoordinatorResult, now: Now) -> None:
        if self.state is not CoordinatorState.ACTIVE:
            return
        if decision.records:
            assert not decision.at_once, "a decision with records waits for their commit"
            try:
                end_offset = self._port.append(decision, now)
            except (KafkaError, OSError) as error:
                self._append_failed(decision, kafka_error(error), now)
                return
            except Exception as error:
                self._break("unknown which records were appended", error)
                return
            self._applied(end_offset, lambda: self._replay_all(decision))
        if decision.at_once:
            self._outgoing.extend((*decision.replies, *decision.effects))
        elif decision.replies or decision.effects:
            self._await_commit(decision.replies, decision.effects, now)

    def _replay_all(self, decision: CoordinatorResult) -> None:
        for record in decision.records:
            self.machine.replay(record, decision.producer)

    def _applied(self, end_offset: Offset, apply: Callable[[], None]) -> None:
        """Apply the records appended up to `end_offset`; a failure closes the partition."""
        try:
            apply()
        except Exception as error:
            self._break("appended records cannot be applied", error)
        self.end_offset = end_offset

    def _break(self, why: str, error: Exception) -> None:
        logger.error("%s: %s, the partition is reloaded", self._name, why, exc_info=error)
        if self.state is CoordinatorState.CLOSED:
            return  # an append has closed it
        port = self._port
        self.close()
        port.broken()

    def _append_failed(self, decision: CoordinatorResult, error: KafkaError, now: Now) -> None:
        logger.info("%s: records not appended: %s", self._name, error)
        error_code = coordinator_error(error.error_code)
        for reply in decision.replies:
            self._refuse(reply.token, error_code)
        try:
            follow_up = self.machine.append_failed(decision, error_code, now)
        except Exception as error:
            self._break("a decision that was not appended cannot be undone", error)
            return
        if follow_up is not None:
            assert not follow_up.records, "the follow-up of a failed append has no records"
            self._take(follow_up, now)

    def _await_commit(self, replies: Sequence[Reply], effects: Sequence[Any], now: Now) -> None:
        if self.state is CoordinatorState.ACTIVE:
            deadline_ms = now.monotonic_ms + self._write_timeout_ms
            self._pending.append(_Pending(self.end_offset, deadline_ms, replies, effects))

    def _expire(self, now: Now) -> None:
        """Refuse requests whose write timed out; their records may still be committed."""
        kept: list[_Pending] = []
        while self._pending and self._pending[0].deadline_ms <= now.monotonic_ms:
            pending = self._pending.popleft()
            for reply in pending.replies:
                self._refuse(reply.token, coordinator_error(ErrorCode.request_timed_out))
            if pending.effects:
                kept.append(pending._replace(replies=()))
        self._pending.extendleft(reversed(kept))

    def _refuse(self, token: Token, error_code: ErrorCode) -> None:
        self._outgoing.append(_Refusal(token, error_code))

    def _send(self) -> None:
        """Send committed replies, refusals and effects, in order.

        A recipient may call back before this returns: the nested call leaves its items to the outer one, as
        thousands of clients may do so.
        """
        if self._is_sending:
            return
        self._is_sending = True
        try:
            while (item := self._next_outgoing()) is not None:
                if type(item) is Reply:
                    if self._open.pop(item.token, self) is not self:
                        self._say(item.token.answer, item.response)
                elif type(item) is _Refusal:
                    if self._open.pop(item.token, self) is not self:
                        self._say(item.token.refuse, item.error_code)
                elif self.state is not CoordinatorState.CLOSED:
                    self._say(self._port.carry_out, item)
        finally:
            self._is_sending = False

    def _next_outgoing(self) -> Any:
        """Take out the next item to send; None if nothing is due."""
        pending, outgoing = self._pending, self._outgoing
        while pending and pending[0].end_offset <= self._high_watermark:
            _, _, replies, effects = pending.popleft()
            outgoing.extend((*replies, *effects))
        return outgoing.popleft() if outgoing else None

    def _say(self, send: Callable[..., None], *what: Any) -> None:
        """Call a recipient; an exception is logged so that the others still get theirs."""
        try:
            send(*what)
        except Exception:
            logger.exception("%s: a reply or an effect failed", self._name)
