"""Contract between a coordinator's machine and its runtime.

A machine decides for one partition of an internal topic. The runtime appends the records of a decision,
replays them, waits until they are committed, sends the replies and carries out the effects, in that order.
The rules:

- Deciding changes volatile state only: waiting requests and timers. Durable state changes in `replay` alone.
  So records that could not be appended were never applied, and the state after a load is the state before it.

- The runtime appends and replays one decision before it asks for the next; iterables of decisions are lazy.

- A reply rests on all records replayed before it, committed or not; the runtime waits for those too, unless
  the decision says `at_once`.

Source: Kafka's CoordinatorResult, CoordinatorShard and CoordinatorPlayback.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from sparklog.executor.coordinators.records.entities import CoordinatorKey, CoordinatorValue
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.key_values import KeyRun
from sparklog.protocol.types import ProducerEpoch, ProducerId, TimestampMs

Token: TypeAlias = Any
"""Names a request that awaits its reply; opaque and hashable."""


class Now(NamedTuple):
    """Monotonic time for time-outs, wall-clock time for timestamps in records."""

    monotonic_ms: int
    wall_ms: TimestampMs


class ProducerStamp(NamedTuple):
    """Producer id and epoch of a transactional batch."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic; a value of `None` is a tombstone."""

    key: CoordinatorKey
    value: CoordinatorValue | None


class Reply(NamedTuple):
    token: Token
    response: Any


class CoordinatorResult(NamedTuple):
    """Records, replies and effects, carried out together or not at all."""

    records: Sequence[CoordinatorRecord] = ()
    """One batch."""
    replies: Sequence[Reply] = ()
    """Sent once these records, and all before them, are committed."""
    effects: Sequence[Any] = ()
    """Carried out after the replies: `RunInExecutor`, and the effects of the coordinator's kind."""
    producer: ProducerStamp | None = None
    """Producer of a transactional batch, which `end_transaction` ends later; None for a plain batch."""
    verification: Any = None
    """With a producer: the event's verification, which lets the log begin the transaction (KIP-890)."""
    at_once: bool = False
    """Whether replies and effects rest on nothing uncommitted; only without records."""


NOTHING = CoordinatorResult()


class Outcome:
    __slots__ = ("records", "replies")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.replies: list[Reply] = []

    def reply(self, token: Token, response: Any) -> None:
        self.replies.append(Reply(token, response))

    def decision(self) -> CoordinatorResult:
        return CoordinatorResult(self.records, self.replies)


class RunInExecutor(NamedTuple):
    """An effect: pure, expensive work for a thread, while the loop serves other requests."""

    function: Callable[[], Any]
    then: Callable[[Any, Now], CoordinatorResult]
    """Decides about the result, or about the exception of `function`; not called once closed."""


@runtime_checkable
class RawReplay(Protocol):
    """Optional ability of a machine: to replay records of a load without decoding them.

    A partition may have millions, and decoding all of them would be most of a load.
    """

    def replay_raw(self, run: KeyRun) -> bool:
        """Apply records outside of transactions; return False if they must be decoded first."""


@runtime_checkable
class Release(Protocol):
    """Optional ability of a machine: to release its memory in slices.

    Freeing a million objects at once blocks the loop; and reference cycles among them may stay for ever, as a
    broker's full collections look at new objects only.
    """

    def release(self) -> Iterator[None]:
        """Release the large collections, a slice at a time; the machine is not used afterwards."""


class CoordinatorMachine(Protocol):
    """State of one partition: durable as `replay` and `end_transaction` made it, otherwise volatile."""

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        """Apply a record of the log; with a `producer` it is pending until the transaction ends."""

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        """Apply a marker of the log: the producer's pending records take effect, or are dropped."""

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        """Finish the load, after its last record; called once, before any request is decided."""

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        """React to the new metadata.

        `image` may lack entities of `delta`: deltas missed during the load come with the newest image.
        """

    @property
    def next_due_ms(self) -> int | None:
        """Monotonic time of the next `tick`; None if there is none."""

    def tick(self, now: Now) -> Iterable[CoordinatorResult]:
        """Run timers that are due. Afterwards `next_due_ms` lies in the future, or is None."""

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        """Restore volatile state after `decision` was not appended.

        The tokens of its replies are already answered with `error`. Requests that wait for its outcome are
        answered by the returned decision, which has no records.
        """
