"""What a coordinator's machine is, and what it says: the contract between machines and their runtime.

A machine decides for one partition of an internal topic. The runtime appends what it decides, has
it replayed, waits until it is committed, and tells the replies and carries out the effects, in that order.
The rules:

- Deciding changes volatile state only: who waits, timers. Durable state changes in `replay` alone. So what
  could not be appended was never applied, and the state after a load is the state before it.
- The runtime appends and replays one decision before it asks for the next; iterables of decisions are lazy.
- What a machine says rests on all that was replayed before, committed or not; the runtime waits for that too,
  unless the decision says `at_once`.

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
"""Names a request that waits for its reply; hashable, and nothing else is known about it."""


class Now(NamedTuple):
    """The two times: one that never jumps, for time-outs, and one for timestamps in records."""

    monotonic_ms: int
    wall_ms: TimestampMs


class ProducerStamp(NamedTuple):
    """As whom a batch is appended, or was."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic; a value of `None` is a tombstone."""

    key: CoordinatorKey
    value: CoordinatorValue | None


class Reply(NamedTuple):
    """The response for a request that waits."""

    token: Token
    response: Any


class Decision(NamedTuple):
    """What is to be done, all of it or nothing."""

    records: Sequence[CoordinatorRecord] = ()
    """One batch."""
    replies: Sequence[Reply] = ()
    """Told once the records, and all before them, are committed."""
    effects: Sequence[Any] = ()
    """Carried out when the replies are told: `Beside`, and what the runtime's owner knows to carry out."""
    producer: ProducerStamp | None = None
    """Append as a transactional batch of this producer; its `end_transaction` comes later."""
    verification: Any = None
    """With a producer: what came with the event, and lets the log begin the transaction (KIP-890)."""
    at_once: bool = False
    """Whether replies and effects rest on nothing uncommitted; only without records."""


NOTHING = Decision()


class Beside(NamedTuple):
    """An effect: something pure and heavy, which a thread does while others are served."""

    function: Callable[[], Any]
    then: Callable[[Any, Now], Decision]
    """Decides about the result, unless the partition is closed meanwhile; if the function raised, the
    result is its exception."""


@runtime_checkable
class RawReplay(Protocol):
    """What a machine may do besides: take records of a load as they lie in the log.

    A partition may have millions of them, and entities of all would be most of a load.
    """

    def replay_raw(self, run: KeyRun) -> bool:
        """Apply records outside of transactions; return whether it could: else they are decoded first."""


@runtime_checkable
class Release(Protocol):
    """What a machine may do besides: let go of much without holding anybody up.

    A million objects that go at once keep everybody waiting; and some that refer to each other may stay for
    ever, as a broker's full collections look at what is new only.
    """

    def release(self) -> Iterator[None]:
        """Let go of what there may be much of, a slice at a time; nothing is asked of it any more."""


class CoordinatorMachine(Protocol):
    """One partition. Durable state is what `replay` and `end_transaction` have made; all else is volatile."""

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        """Apply a record that is in the log; with a `producer` it is pending until its transaction ends."""

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        """A marker is in the log: what is pending of this producer takes effect, or is forgotten."""

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[Decision]:
        """The last record of the load was replayed; called once, before any request is decided."""

    def metadata_changed(self, image: MetadataImage, delta: MetadataDelta, now: Now) -> Iterable[Decision]:
        """The cluster is now as `image` says.

        Of what `delta` tells it may know nothing any more: a machine that was being loaded is told with the
        newest image what it missed.
        """

    @property
    def next_due_ms(self) -> int | None:
        """The monotonic time at which `tick` is wanted next; None while nothing is."""

    def tick(self, now: Now) -> Iterable[Decision]:
        """Do what is due. Afterwards `next_due_ms` lies in the future, or is None."""

    def append_failed(self, decision: Decision, error: ErrorCode, now: Now) -> Decision | None:
        """`decision` was not appended: put volatile state right.

        Tokens in its replies have been answered with `error` already; those that wait for what will not come
        are answered by what is returned, which has no records.
        """
