"""One application owns the prefix of a store at a time: how it takes the object `owner`, keeps it and loses
it.

A pure machine. Its caller carries out the effects that every method returns, in their order, and reports
the result of each `ReadOwner` and `WriteOwner` by one event, `owner_read`, `owner_written`,
`owner_write_refused` or `store_failed`. `tick` lets time pass.

    taking    the object is read; it is written when there is no owner, a stopped one or a dead one
    owned     the object is written again every third of the session: a beat
    ended     refused by a living owner, lost to another one, or stopped

The rules:

- Every change is a compare-and-swap of the object, and each owner has a higher epoch than the one before. A
  manifest carries it, so an application that has lost the prefix without knowing it writes nothing that
  counts.
- An owner is dead when its beat has not changed for its session, by the clock of the one that looks: clocks
  of two hosts are never compared. An owner on the same host that refuses connections is dead at once, and so
  is one at the address that this application has bound.
- A write whose outcome is unknown is resolved by reading the object before anything else is written.
- The same application takes its own ownership again, in the same epoch: its controller may be restarted.
"""

import json
from dataclasses import asdict, dataclass, replace
from typing import Final, TypeAlias

OWNER_NAME: Final = "owner"
"""The object's path below the prefix."""
SESSION_MS: Final = 30_000
LOOK_MS: Final = 1_000
"""The interval of reads while an owner's life is in question, and the pause after an error of the store."""
_FORMAT: Final = 1


class OwnerFormatError(Exception):
    """The object is no owner that this version of sparklog can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    application: str
    """Unique to each start of a cluster."""
    epoch: int
    """The owner epoch, from 1."""
    address: str
    """The bootstrap address of its cluster."""
    host: str
    """Equal for two processes if each reaches the other's loopback addresses."""
    cluster_id: str | None
    """None until it is known."""
    beat: int
    """Changes with every write."""
    session_ms: int
    is_stopped: bool = False
    """Whether it has ended in order: all that it had is in the store."""


def encode_owner(owner: Owner) -> bytes:
    return json.dumps({"format": _FORMAT, **asdict(owner)}, indent=1).encode()


def decode_owner(data: bytes) -> Owner:
    """Return the owner in the object's bytes.

    Raises:
        OwnerFormatError.
    """
    try:
        fields = json.loads(data)
        version = fields.pop("format")
        if version != _FORMAT:
            raise OwnerFormatError(f"the object {OWNER_NAME} has format {version}, known here is {_FORMAT}")
        owner = Owner(**fields)
        if not (isinstance(owner.epoch, int) and isinstance(owner.session_ms, int)):
            raise OwnerFormatError(f"the object {OWNER_NAME} has epoch {owner.epoch!r}")
        return owner
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise OwnerFormatError(
            f"the object {OWNER_NAME} is not one of sparklog's ({error}): name another prefix"
        ) from None


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """Read the object; answer with `owner_read` or `store_failed`."""


@dataclass(frozen=True, slots=True)
class WriteOwner:
    """Create the object, or replace that of a version; answer with `owner_written`, `owner_write_refused` or
    `store_failed`."""

    owner: Owner
    version: str | None


@dataclass(frozen=True, slots=True)
class Taken:
    """The prefix is this application's."""

    owner_epoch: int
    former: Owner | None


@dataclass(frozen=True, slots=True)
class Refused:
    """Another application lives there."""

    by: Owner


@dataclass(frozen=True, slots=True)
class Lost:
    """Another application has taken the prefix: nothing is written there any more."""

    to: Owner | None
    """None: the object is gone."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The object says that this application has ended in order."""


OwnershipEffect: TypeAlias = ReadOwner | WriteOwner | Taken | Refused | Lost | Stopped


class Ownership:
    def __init__(self, application: str, address: str, host: str, session_ms: int = SESSION_MS) -> None:
        self.owner_epoch: int | None = None
        """None until the prefix is this application's."""
        self.waits_for: Owner | None = None
        """The owner whose session has to pass before the prefix can be taken; None if there is none."""
        self._me = Owner(
            application=application,
            epoch=0,
            address=address,
            host=host,
            cluster_id=None,
            beat=0,
            session_ms=session_ms,
        )
        self._former: Owner | None = None
        self._version: str | None = None
        """Version of the object as this application wrote it last."""
        self._in_flight = False
        self._unknown = True
        """Whether the object has to be read before it is written."""
        self._writing: Owner | None = None
        self._due_ms = 0
        self._seen_ms: int | None = None
        """When the beat of `waits_for` was seen first."""
        self._stop_wanted = False
        self._ended = False

    @property
    def is_owned(self) -> bool:
        return self.owner_epoch is not None and not self._ended

    def is_own(self, owner: Owner) -> bool:
        """Return whether `owner` is this application, in the epoch in which it took the prefix."""
        return owner.application == self._me.application and owner.epoch == self.owner_epoch

    def has_address_of(self, owner: Owner) -> bool:
        """Return whether `owner` listened where this application listens now."""
        return owner.host == self._me.host and owner.address == self._me.address

    def tick(self, now_ms: int) -> list[OwnershipEffect]:
        if self._ended or self._in_flight or now_ms < self._due_ms:
            return []
        self._in_flight = True
        if self._unknown:
            return [ReadOwner()]
        return [self._written(replace(self._me, beat=self._me.beat + 1, is_stopped=self._stop_wanted))]

    def cluster_known(self, cluster_id: str) -> None:
        """Note the id of the cluster, which the next beat has."""
        self._me = replace(self._me, cluster_id=cluster_id)

    def stop(self, now_ms: int) -> list[OwnershipEffect]:
        """Mark the owner stopped, so that the next start need not wait for its session."""
        if not self.is_owned:
            return []
        self._stop_wanted = True
        self._due_ms = now_ms
        return self.tick(now_ms)

    def owner_read(
        self, owner: Owner | None, version: str | None, now_ms: int, *, is_gone: bool = False
    ) -> list[OwnershipEffect]:
        """The object has that owner; `is_gone`: it is on this host, and does not listen any more."""
        self._in_flight = False
        self._unknown = False
        if owner is not None and owner.application == self._me.application:
            return self._own_read(owner, version, now_ms)
        if self.owner_epoch is not None:
            return self._lost(owner)
        if owner is None or owner.is_stopped or is_gone or self._is_silent(owner, now_ms):
            self._former = owner
            self._version = version
            self._in_flight = True
            epoch = 1 if owner is None else owner.epoch + 1
            return [self._written(replace(self._me, epoch=epoch, beat=1))]
        if self.waits_for is None or self._seen_ms is None:
            self.waits_for, self._seen_ms = owner, now_ms
        elif (owner.application, owner.beat) != (self.waits_for.application, self.waits_for.beat):
            self._ended = True
            return [Refused(owner)]
        self._look_again(now_ms)
        return []

    def owner_written(self, version: str, now_ms: int) -> list[OwnershipEffect]:
        self._in_flight = False
        assert self._writing is not None, "a write was asked for"
        return self._holds(self._writing, version, now_ms)

    def owner_write_refused(self, now_ms: int) -> list[OwnershipEffect]:
        """The object is in another state than the write expected."""
        self._in_flight = False
        self._unknown = True
        self._due_ms = now_ms
        return self.tick(now_ms)

    def store_failed(self, now_ms: int) -> list[OwnershipEffect]:
        """The outcome of the last effect is unknown."""
        self._in_flight = False
        self._look_again(now_ms)
        return []

    def _own_read(self, owner: Owner, version: str | None, now_ms: int) -> list[OwnershipEffect]:
        """Go on with what this application has written, in this process or in one before."""
        if self.owner_epoch is not None and owner.epoch != self.owner_epoch:
            return self._lost(owner)
        effects = self._holds(owner, version, now_ms)
        if self._writing is None or owner.beat != self._writing.beat:
            self._due_ms = now_ms  # no beat of this process is in the store
        return effects

    def _holds(self, owner: Owner, version: str | None, now_ms: int) -> list[OwnershipEffect]:
        is_new = self.owner_epoch is None
        cluster_id = owner.cluster_id if self._me.cluster_id is None else self._me.cluster_id
        self._me = replace(self._me, epoch=owner.epoch, beat=owner.beat, cluster_id=cluster_id)
        self._version = version
        self.owner_epoch = owner.epoch
        self.waits_for = None
        self._due_ms = now_ms + self._me.session_ms // 3
        if self._stop_wanted and owner.is_stopped:
            self._ended = True
            return [Stopped()]
        if self._stop_wanted:
            self._due_ms = now_ms
        taken: list[OwnershipEffect] = [Taken(owner.epoch, self._former)] if is_new else []
        return [*taken, *(self.tick(now_ms) if self._stop_wanted else [])]

    def _written(self, owner: Owner) -> WriteOwner:
        self._writing = owner
        return WriteOwner(owner, self._version)

    def _is_silent(self, owner: Owner, now_ms: int) -> bool:
        return (
            self.waits_for is not None
            and self._seen_ms is not None
            and (owner.application, owner.beat) == (self.waits_for.application, self.waits_for.beat)
            and now_ms - self._seen_ms >= owner.session_ms
        )

    def _look_again(self, now_ms: int) -> None:
        self._unknown = True
        self._due_ms = now_ms + LOOK_MS

    def _lost(self, owner: Owner | None) -> list[OwnershipEffect]:
        self._ended = True
        return [Lost(owner)]
