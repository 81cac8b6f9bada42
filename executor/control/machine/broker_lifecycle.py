"""A broker's life as the controller knows it: registration, heartbeats, fencing, controlled shutdown.

A pure machine. Its caller takes one `step` after the other, at once when something has happened, or else when
the time of the last one has come, and reports what came of a request with `answered`; it reports what the
broker has applied of the metadata log with `metadata_applied`. Rules kept:

- Nothing is said to be ready before the broker has applied the record of its own registration: only from
  there on does it know everything that was decided before it came.
- A broker epoch that the controller no longer knows ends this broker's life. Another incarnation has its
  place, and a process that starts anew says so in its registration; this one can only do harm.
- A lease lasts `session_timeout_ms` from the moment the last heartbeat that was answered had been *sent*:
  the controller counts from later, so it never outlasts the controller's own patience.
- A lease that ran out is held again only when the broker has asked anew for the metadata log and applied
  the answer (`metadata_fetched`): the leaderships it knows of may have been given away meanwhile, and a
  heartbeat's answer does not say so.
- Heartbeats come from a thread that a long turn of the broker's loop does not hold up, so they say nothing of
  that loop. A loop that stands still for the session's time serves no client: the broker gives its lease up
  first and asks to be fenced then, and the lease comes back by the rule above. Kafka's broker would keep its
  leaderships; here produce, fetch and replication share the one loop.

Source: Kafka's BrokerLifecycleManager; KIP-631, KIP-841 (controlled shutdown), KIP-966 (previous epoch).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.broker_heartbeat.v2 import BrokerHeartbeatRequest
from kio.schema.broker_registration.v4 import BrokerRegistrationRequest
from kio.schema.broker_registration.v4.request import Feature, Listener

from sparklog.endpoints import Endpoint
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.registrations import FeatureRange
from sparklog.types import BrokerEpoch, BrokerId, Offset, or_minus_one

RETRY_MS: Final = 100
"""Pause after a refused or lost request; connecting itself backs off in the controller link."""
LINK_POLL_MS: Final = 100
"""How often it is looked whether the controller is reached again."""
SHUTDOWN_POLL_MS: Final = 50
"""Pause between two heartbeats of a broker that waits for leave to go."""

_FATAL_AT_REGISTRATION: Final = frozenset(
    {ErrorCode.inconsistent_cluster_id, ErrorCode.invalid_registration, ErrorCode.unsupported_version}
)
_REPLACED: Final = frozenset({ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered})


class BrokerState(Enum):
    """Where a broker is in its life; the names are Kafka's."""

    NOT_RUNNING = "not running"
    STARTING = "starting"
    RECOVERY = "catching up with the metadata log"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "handing over its leaderships"
    SHUTTING_DOWN = "shutting down"


class RegistrationRefusedError(KafkaError):
    """The controller will not have this broker, however often it starts."""


class BrokerDiskError(KafkaError):
    """The broker has no log directory left that it can use, or its metadata log lies in one that failed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, message)


class BrokerReplacedError(KafkaError):
    """This incarnation's place is another's, or was not to be had in time; a new process may try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """What a broker tells the controller about itself when it registers."""

    cluster_id: str
    node_id: BrokerId
    incarnation_id: UUID
    rack: str | None
    listeners: Sequence[Endpoint]
    features: Sequence[tuple[str, FeatureRange]]
    log_directories: Sequence[UUID]
    previous_broker_epoch: BrokerEpoch | None
    """From the marker of a clean shutdown; None after a crash, or with a new directory."""


class Leave(NamedTuple):
    """Shut down."""


class Wait(NamedTuple):
    """Nothing is to be done before then, unless something happens."""

    until_ms: int


class Ask(NamedTuple):
    """Send a request, and pass what comes of it to `answered` before the next step."""

    request: Any


class BrokerLifecycle:
    """One incarnation of a broker, from its first registration to the end."""

    def __init__(
        self,
        identity: BrokerIdentity,
        *,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        registration_timeout_ms: int,
        controlled_shutdown_timeout_ms: int,
        now_ms: int,
    ) -> None:
        self.identity = identity
        self.state = BrokerState.STARTING
        self.broker_epoch: BrokerEpoch | None = None
        """None until registered."""
        self.is_fenced = True
        """What the last answered heartbeat said."""
        self.failure: RegistrationRefusedError | BrokerReplacedError | BrokerDiskError | None = None
        """Why the broker had to go, if it was not asked to."""
        self.cluster_ended = False
        """Whether the broker goes because all do: nobody is left who would start it again."""
        self.due_ms = now_ms
        """When the next request is to be sent."""
        self.has_undeclared_damage = False
        """Replicas here lack something of which the controller does not know: not to be unfenced yet."""
        self._offline_directories: list[UUID] = []
        self._told_directories = 0
        """How many of those the last request named."""
        self._disk_failure: BrokerDiskError | None = None
        self._disk_failure_told = False
        self._disk_deadline_ms: int | None = None
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._registration_deadline_ms = now_ms + registration_timeout_ms
        self._controlled_shutdown_timeout_ms = controlled_shutdown_timeout_ms
        self._shutdown_deadline_ms: int | None = None
        self._applied_offset: Offset | None = None
        self._knows_itself = False
        self._sent_ms = now_ms
        self._lease_start_ms: int | None = None
        self._lease_renewed_ms: int | None = None
        """When a lease that had run out was renewed; None once newer metadata has been applied."""
        self._has_yielded = False
        """Whether the lease was given up because the broker's loop stands still."""

    def step(
        self,
        now_ms: int,
        *,
        stop_asked: bool,
        is_connected: bool,
        unreachable_ms: int,
        is_refused: bool,
        loop_stands_still: bool = False,
    ) -> Leave | Wait | Ask:
        """Return what to do now, as far as it is known whether to stop and how the controller is reached.

        `loop_stands_still`: the loop that serves clients and followers has not gone round for the session's
        time.
        """
        if stop_asked:
            self.stop_asked(now_ms)
        self._judge_loop(now_ms, stands_still=loop_stands_still)
        self.tick(now_ms)
        self.controller_gone(unreachable_ms, refused=is_refused)
        if self.state is BrokerState.SHUTTING_DOWN:
            return Leave()
        if not is_connected:
            return Wait(now_ms + LINK_POLL_MS)
        if self.due_ms > now_ms:
            return Wait(self.due_ms)
        return Ask(self.next_request(now_ms))

    def answered(self, response: Any, now_ms: int) -> None:
        """Take in the answer to the request of the last step; None if there was none."""
        if response is None:
            self.request_failed(now_ms)
        elif self.broker_epoch is None:
            self.registration_answered(response.error_code, response.broker_epoch, now_ms)
        else:
            self.heartbeat_answered(
                response.error_code, response.is_fenced, response.should_shut_down, now_ms
            )

    def next_request(self, now_ms: int) -> Any:
        """Return the registration or heartbeat to send now, a kio entity of the newest version."""
        self._sent_ms = now_ms
        if self.broker_epoch is None:
            return self._registration()
        self._told_directories = len(self._offline_directories)
        self._disk_failure_told = self._disk_failure is not None
        return BrokerHeartbeatRequest(
            broker_id=self.identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=or_minus_one(self._applied_offset),
            want_fence=(
                not self._knows_itself or self._has_yielded or (self.has_undeclared_damage and self.is_fenced)
            ),
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=tuple(self._offline_directories),
        )

    def registration_answered(self, error_code: ErrorCode, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        """Take in the controller's answer to a registration."""
        if error_code is ErrorCode.none:
            self.broker_epoch = broker_epoch
            self.due_ms = now_ms
            self._lease_start_ms = self._sent_ms
        elif error_code in _FATAL_AT_REGISTRATION:
            self._fail(RegistrationRefusedError(error_code, f"{self._name} cannot register"))
        elif now_ms >= self._registration_deadline_ms:
            self._fail(BrokerReplacedError(error_code, f"{self._name} could not register in time"))
        else:
            # DUPLICATE_BROKER_REGISTRATION: the process before this one still holds its lease.
            self.due_ms = now_ms + RETRY_MS

    def heartbeat_answered(
        self, error_code: ErrorCode, is_fenced: bool, should_shut_down: bool, now_ms: int
    ) -> None:
        """Take in the controller's answer to a heartbeat."""
        if self._disk_failure is not None and self._disk_failure_told:
            self._fail(self._disk_failure)
            return
        if error_code in _REPLACED:
            self._fail(
                BrokerReplacedError(
                    error_code,
                    f"{self._name}: its broker epoch {self.broker_epoch} is not the registered one",
                )
            )
            return
        if error_code is not ErrorCode.none:
            self.due_ms = now_ms + RETRY_MS
            return
        if not self._has_yielded:
            if not self._was_answered_lately(now_ms):
                self._lease_renewed_ms = now_ms
            self._lease_start_ms = self._sent_ms
        self.is_fenced = is_fenced
        if should_shut_down:
            # Who leaves alone, asked or not, is fenced with it; when all are told to go, nobody is.
            self.cluster_ended = not is_fenced
            self.state = BrokerState.SHUTTING_DOWN
            return
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.due_ms = now_ms + SHUTDOWN_POLL_MS
            return
        if self.state is BrokerState.RECOVERY and not is_fenced:
            self.state = BrokerState.RUNNING
        self.due_ms = now_ms + self._heartbeat_interval_ms
        if is_fenced and self._knows_itself:
            # Unfencing waits only for the controller to see how far this broker has got.
            self.due_ms = now_ms + min(RETRY_MS, self._heartbeat_interval_ms)
        if self._told_directories < len(self._offline_directories):
            # One went offline while the request was under way.
            self.due_ms = now_ms

    def request_failed(self, now_ms: int) -> None:
        """The request was not sent, or its answer was lost."""
        self.due_ms = now_ms + RETRY_MS

    def metadata_applied(
        self, offset: Offset | None, registered_epoch: BrokerEpoch | None, now_ms: int
    ) -> None:
        """The broker acts on metadata up to `offset`, in which its own registration is `registered_epoch`."""
        self._applied_offset = offset
        if self.broker_epoch is None or registered_epoch is None or self._knows_itself:
            return
        if registered_epoch == self.broker_epoch:
            self._knows_itself = True
            self.due_ms = now_ms
            if self.state is BrokerState.STARTING:
                self.state = BrokerState.RECOVERY

    def metadata_fetched(self, sent_ms: int) -> None:
        """A fetch of the metadata log sent at `sent_ms` was answered; all that was committed is applied."""
        if self._lease_renewed_ms is not None and sent_ms > self._lease_renewed_ms:
            self._lease_renewed_ms = None

    def directory_failed(self, directory_id: UUID, now_ms: int, *, is_last: bool) -> None:
        """A log directory went offline; `is_last`: the broker cannot go on without it.

        The controller is told at once, and moves what was led there. A broker that cannot go on leaves when
        that was answered, or after the time of a heartbeat.
        """
        self._offline_directories.append(directory_id)
        self.due_ms = now_ms
        if is_last and self._disk_failure is None:
            self._offline_directories = list(self.identity.log_directories)
            self._disk_failure = BrokerDiskError(f"{self._name} has no log directory left that it can use")
            self._disk_deadline_ms = now_ms + self._heartbeat_interval_ms

    def stop_asked(self, now_ms: int) -> None:
        """Begin a controlled shutdown; asked again, it changes nothing."""
        if self.state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            return
        if self.broker_epoch is None:
            self.state = BrokerState.SHUTTING_DOWN
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._shutdown_deadline_ms = now_ms + self._controlled_shutdown_timeout_ms
        self.due_ms = now_ms

    def controller_gone(self, for_ms: int, *, refused: bool = False) -> None:
        """There has been no connection to the controller for so long: nobody will give leave to go.

        Where a new one is `refused`, its process is dead, and there is nothing to wait for.
        """
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and (
            refused or for_ms >= self._heartbeat_interval_ms
        ):
            self.cluster_ended = True
            self.state = BrokerState.SHUTTING_DOWN

    def tick(self, now_ms: int) -> None:
        """Let time pass: end a controlled shutdown that takes too long, or a broker without a disk."""
        if self._disk_deadline_ms is not None and now_ms >= self._disk_deadline_ms:
            assert self._disk_failure is not None, "it came with the deadline"
            self._fail(self._disk_failure)
        if self._shutdown_deadline_ms is not None and now_ms >= self._shutdown_deadline_ms:
            self.state = BrokerState.SHUTTING_DOWN

    def holds_lease(self, now_ms: int) -> bool:
        """Whether the controller cannot have given this broker's leaderships away for its silence."""
        return self._lease_renewed_ms is None and self._was_answered_lately(now_ms)

    def _judge_loop(self, now_ms: int, *, stands_still: bool) -> None:
        """Give the lease up when the broker's loop stands still, before the controller hears of it."""
        if stands_still is self._has_yielded or self.broker_epoch is None:
            return
        self._has_yielded = stands_still
        self._lease_start_ms = None
        self.due_ms = now_ms

    def _was_answered_lately(self, now_ms: int) -> bool:
        return self._lease_start_ms is not None and now_ms - self._lease_start_ms < self._session_timeout_ms

    @property
    def _name(self) -> str:
        return f"broker {self.identity.node_id} of cluster {self.identity.cluster_id}"

    def _fail(self, failure: RegistrationRefusedError | BrokerReplacedError | BrokerDiskError) -> None:
        self.failure = failure
        self.state = BrokerState.SHUTTING_DOWN

    def _registration(self) -> Any:
        identity = self.identity
        previous = identity.previous_broker_epoch
        return BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=tuple(
                Listener(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=int(endpoint.security_protocol),
                )
                for endpoint in identity.listeners
            ),
            features=tuple(
                Feature(
                    name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level
                )
                for name, levels in identity.features
            ),
            rack=identity.rack,
            log_dirs=tuple(sorted(identity.log_directories)),
            previous_broker_epoch=or_minus_one(previous),
        )
