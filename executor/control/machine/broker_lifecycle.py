"""The lifecycle of a broker in the controller's view: registration, heartbeats, fencing, controlled shutdown.

A pure machine. Its caller takes one `step` after the other, at once after an event, or at the time that the
last one named, and reports the result of a request with `answered`, and the applied offset of the metadata
log with `metadata_applied`. Rules kept:

- A broker reports ready only after it has applied the record of its own registration: only then does it know
  all decisions made before.
- A broker epoch that the controller no longer knows ends this process: another incarnation has its place. A
  process that restarts says so in its registration.
- A lease lasts `session_timeout_ms` from the moment the last answered heartbeat was *sent*: the controller
  counts from later, so a lease never outlasts the controller's session.
- A lease that expired is held again only after the broker has fetched the metadata log once more and applied
  the answer (`metadata_fetched`): its leaderships may have been given away meanwhile, and a heartbeat's
  answer does not say so.
- Heartbeats come from a thread that a long turn of the broker's loop does not delay, so they say nothing of
  that loop. A loop that is stuck for the session's time serves no client: the broker first gives up its
  lease, then asks to be fenced, and regains the lease by the rule above. Kafka's broker would keep its
  leaderships; here produce, fetch and replication share one loop.

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

from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.registrations import FeatureRange
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId, Offset, or_minus_one

RETRY_MS: Final = 100
"""The pause after a refused or lost request; the controller link itself backs off while connecting."""
LINK_POLL_MS: Final = 100
"""The interval of checks for a reachable controller."""
LOOP_CHECK_MS: Final = 500
"""The longest interval of checks of the broker's loop while it is in a turn."""
SHUTDOWN_POLL_MS: Final = 50
"""The pause between heartbeats of a broker that waits for permission to shut down."""

_FATAL_AT_REGISTRATION: Final = frozenset(
    {ErrorCode.inconsistent_cluster_id, ErrorCode.invalid_registration, ErrorCode.unsupported_version}
)
_REPLACED: Final = frozenset({ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered})


class BrokerState(Enum):
    NOT_RUNNING = "not running"
    STARTING = "starting"
    RECOVERY = "catching up with the metadata log"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "handing over its leaderships"
    SHUTTING_DOWN = "shutting down"


class RegistrationRefusedError(KafkaError):
    """The controller refuses this broker for good."""


class BrokerDiskError(KafkaError):
    """The broker has no usable log directory left, or the directory of its metadata log has failed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, message)


class BrokerReplacedError(KafkaError):
    """Another incarnation has this broker's place, or it was not free in time; a new process may retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    cluster_id: str
    node_id: BrokerId
    incarnation_id: UUID
    rack: str | None
    listeners: Sequence[Endpoint]
    features: Sequence[tuple[str, FeatureRange]]
    log_directories: Sequence[UUID]
    previous_broker_epoch: BrokerEpoch | None
    """From the clean-shutdown file; None after a crash, or with a new directory."""


class Leave(NamedTuple):
    pass


class Wait(NamedTuple):
    """Wait until then, or for an event."""

    until_ms: int


class Ask(NamedTuple):
    """Send a request, and pass its result to `answered` before the next step."""

    request: Any


class BrokerLifecycle:
    """One incarnation of a broker, from its registration to its end."""

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
        """By the last answered heartbeat."""
        self.failure: RegistrationRefusedError | BrokerReplacedError | BrokerDiskError | None = None
        """The error that ended the broker, None if it was asked to stop."""
        self.cluster_ended = False
        """Whether the whole cluster shuts down, so that no rack would restart the broker."""
        self.due_ms = now_ms
        """The time of the next request."""
        self.has_undeclared_damage = False
        """Whether replicas have damage not yet reported to the controller, so that unfencing must wait."""
        self._offline_directories: list[UUID] = []
        self._reported_directories = 0
        """The number of directories in the last request."""
        self._disk_failure: BrokerDiskError | None = None
        self._disk_failure_reported = False
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
        """The time at which an expired lease was renewed; None once newer metadata is applied."""
        self._has_yielded = False
        """Whether the lease was given up because the broker's loop is stuck."""

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
        """Return the next action.

        `loop_stands_still`: the loop that serves clients and followers has not turned for the session's time.
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
        """Process the answer to the last request; None if it was lost."""
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
        self._reported_directories = len(self._offline_directories)
        self._disk_failure_reported = self._disk_failure is not None
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
        if error_code is ErrorCode.none:
            self.broker_epoch = broker_epoch
            self.due_ms = now_ms
            self._lease_start_ms = self._sent_ms
        elif error_code in _FATAL_AT_REGISTRATION:
            self._fail(RegistrationRefusedError(error_code, f"{self._name} cannot register"))
        elif now_ms >= self._registration_deadline_ms:
            self._fail(BrokerReplacedError(error_code, f"{self._name} could not register in time"))
        else:
            # DUPLICATE_BROKER_REGISTRATION: the previous process still holds its lease.
            self.due_ms = now_ms + RETRY_MS

    def heartbeat_answered(
        self, error_code: ErrorCode, is_fenced: bool, should_shut_down: bool, now_ms: int
    ) -> None:
        if self._disk_failure is not None and self._disk_failure_reported:
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
            # A broker that shuts down alone, asked or not, is fenced by this answer; if the cluster shuts
            # down, it is not.
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
            # Unfencing waits only until the controller sees this broker's offset.
            self.due_ms = now_ms + min(RETRY_MS, self._heartbeat_interval_ms)
        if self._reported_directories < len(self._offline_directories):
            # Another directory went offline while the request was in flight.
            self.due_ms = now_ms

    def request_failed(self, now_ms: int) -> None:
        self.due_ms = now_ms + RETRY_MS

    def metadata_applied(
        self, offset: Offset | None, registered_epoch: BrokerEpoch | None, now_ms: int
    ) -> None:
        """Note the applied offset, and the epoch of this broker's registration in that metadata."""
        self._applied_offset = offset
        if self.broker_epoch is None or registered_epoch is None or self._knows_itself:
            return
        if registered_epoch == self.broker_epoch:
            self._knows_itself = True
            self.due_ms = now_ms
            if self.state is BrokerState.STARTING:
                self.state = BrokerState.RECOVERY

    def metadata_fetched(self, sent_ms: int) -> None:
        """Note that all records committed before `sent_ms`, when a fetch was sent, are applied."""
        if self._lease_renewed_ms is not None and sent_ms > self._lease_renewed_ms:
            self._lease_renewed_ms = None

    def directory_failed(self, directory_id: UUID, now_ms: int, *, is_last: bool) -> None:
        """Note that a log directory is offline; `is_last`: the broker cannot go on without it.

        A heartbeat reports it at once, and the controller moves its leaderships. A broker that cannot go on
        ends after the answer, or after the time of a heartbeat.
        """
        self._offline_directories.append(directory_id)
        self.due_ms = now_ms
        if is_last and self._disk_failure is None:
            self._offline_directories = list(self.identity.log_directories)
            self._disk_failure = BrokerDiskError(f"{self._name} has no log directory left that it can use")
            self._disk_deadline_ms = now_ms + self._heartbeat_interval_ms

    def stop_asked(self, now_ms: int) -> None:
        """Begin a controlled shutdown; idempotent."""
        if self.state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            return
        if self.broker_epoch is None:
            self.state = BrokerState.SHUTTING_DOWN
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._shutdown_deadline_ms = now_ms + self._controlled_shutdown_timeout_ms
        self.due_ms = now_ms

    def controller_gone(self, for_ms: int, *, refused: bool = False) -> None:
        """Note for how long the controller is unreachable; a shutdown then needs no permission.

        If a connection is `refused`, the controller's process is dead, and the shutdown does not wait at all.
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
        """Whether the controller cannot have taken this broker's leaderships for lack of heartbeats."""
        return self._lease_renewed_ms is None and self._was_answered_lately(now_ms)

    def _judge_loop(self, now_ms: int, *, stands_still: bool) -> None:
        """Give up the lease when the broker's loop is stuck, before the next heartbeat reports it."""
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
