"""The broker's life as a pure machine: what it asks the controller for, and what it makes of the answers."""

from uuid import UUID

import pytest

from sparklog.executor.control.machine.broker_lifecycle import (
    Ask,
    BrokerIdentity,
    BrokerLifecycle,
    BrokerReplacedError,
    BrokerState,
    Leave,
    RegistrationRefusedError,
    Wait,
)
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.registrations import FeatureRange
from sparklog.protocol.errors import ErrorCode

EPOCH = 17
START_MS = 1_000


def new_lifecycle() -> BrokerLifecycle:
    identity = BrokerIdentity(
        cluster_id="cluster",
        node_id=2,
        incarnation_id=UUID(int=1234),
        rack="rack-2",
        listeners=(Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
        features=(("metadata.version", FeatureRange(30, 30)),),
        log_directories=(UUID(int=500), UUID(int=400)),
        previous_broker_epoch=None,
    )
    return BrokerLifecycle(
        identity,
        heartbeat_interval_ms=500,
        session_timeout_ms=3_000,
        registration_timeout_ms=60_000,
        controlled_shutdown_timeout_ms=10_000,
        now_ms=START_MS,
    )


def registered() -> BrokerLifecycle:
    lifecycle = new_lifecycle()
    lifecycle.next_request(START_MS)
    lifecycle.registration_answered(ErrorCode.none, EPOCH, START_MS)
    return lifecycle


def running() -> BrokerLifecycle:
    lifecycle = registered()
    lifecycle.metadata_applied(20, EPOCH, START_MS)
    lifecycle.next_request(START_MS)
    lifecycle.heartbeat_answered(ErrorCode.none, False, False, START_MS)
    assert state_of(lifecycle) is BrokerState.RUNNING
    return lifecycle


def state_of(lifecycle: BrokerLifecycle) -> BrokerState:
    """Return the state; through a function, because a type checker takes an attribute to be as it was."""
    return lifecycle.state


def test_lifecycle_at_start_registers_with_everything_the_controller_needs() -> None:
    """Placement, addresses and fencing all rest on what a registration says."""
    request = new_lifecycle().next_request(START_MS)
    assert (request.broker_id, request.cluster_id, request.rack) == (2, "cluster", "rack-2")
    assert request.incarnation_id == UUID(int=1234)
    assert [(listener.host, listener.port) for listener in request.listeners] == [("127.0.0.1", 9092)]
    assert request.log_dirs == (UUID(int=400), UUID(int=500))
    assert request.previous_broker_epoch == -1
    assert [(f.name, f.max_supported_version) for f in request.features] == [("metadata.version", 30)]


def test_lifecycle_registered_but_behind_wants_to_stay_fenced() -> None:
    """A broker that has not seen its own registration may not know that it lost its leaderships."""
    lifecycle = registered()
    lifecycle.metadata_applied(16, None, START_MS)
    request = lifecycle.next_request(START_MS)
    assert (request.broker_epoch, request.want_fence, request.current_metadata_offset) == (EPOCH, True, 16)
    lifecycle.metadata_applied(16, EPOCH - 1, START_MS)
    assert lifecycle.next_request(START_MS).want_fence


def test_lifecycle_with_own_registration_applied_asks_to_be_unfenced_at_once() -> None:
    """Every pause here is a pause of the whole start."""
    lifecycle = registered()
    lifecycle.next_request(START_MS)
    lifecycle.heartbeat_answered(ErrorCode.none, True, False, START_MS)
    lifecycle.metadata_applied(20, EPOCH, START_MS + 30)
    assert state_of(lifecycle) is BrokerState.RECOVERY
    assert lifecycle.due_ms == START_MS + 30
    assert not lifecycle.next_request(START_MS + 30).want_fence
    lifecycle.heartbeat_answered(ErrorCode.none, False, False, START_MS + 40)
    assert state_of(lifecycle) is BrokerState.RUNNING
    assert lifecycle.due_ms == START_MS + 540


def test_lifecycle_duplicate_registration_retries_until_the_deadline() -> None:
    """The lease of the process before this one must run out first; a live twin never lets go."""
    lifecycle = new_lifecycle()
    lifecycle.registration_answered(ErrorCode.duplicate_broker_registration, -1, START_MS)
    assert (lifecycle.state, lifecycle.failure) == (BrokerState.STARTING, None)
    assert lifecycle.due_ms > START_MS
    lifecycle.registration_answered(ErrorCode.duplicate_broker_registration, -1, START_MS + 60_000)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    assert isinstance(lifecycle.failure, BrokerReplacedError)


@pytest.mark.parametrize("error_code", [ErrorCode.inconsistent_cluster_id, ErrorCode.invalid_registration])
def test_lifecycle_registration_refused_for_good_gives_up_at_once(error_code: ErrorCode) -> None:
    """A broker of another cluster would otherwise knock for a minute without saying why."""
    lifecycle = new_lifecycle()
    lifecycle.registration_answered(error_code, -1, START_MS)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    assert isinstance(lifecycle.failure, RegistrationRefusedError)
    assert lifecycle.failure.error_code is error_code


@pytest.mark.parametrize("error_code", [ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered])
def test_lifecycle_with_a_broker_epoch_that_is_gone_ends(error_code: ErrorCode) -> None:
    """A zombie that goes on serving shows its clients an old cluster."""
    lifecycle = running()
    lifecycle.heartbeat_answered(error_code, True, False, START_MS)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    assert isinstance(lifecycle.failure, BrokerReplacedError)


def test_lifecycle_stop_asked_waits_for_leave_to_go() -> None:
    """Leaderships are handed over before the broker goes, so that clients see no gap."""
    lifecycle = running()
    lifecycle.stop_asked(START_MS + 100)
    assert state_of(lifecycle) is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert lifecycle.due_ms == START_MS + 100
    assert lifecycle.next_request(START_MS + 100).want_shut_down
    lifecycle.heartbeat_answered(ErrorCode.none, False, False, START_MS + 110)
    assert state_of(lifecycle) is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    lifecycle.heartbeat_answered(ErrorCode.none, True, True, START_MS + 160)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    assert lifecycle.failure is None
    assert not lifecycle.cluster_ended


def test_lifecycle_that_asked_to_leave_while_all_are_told_to_goes_for_good() -> None:
    """Signals of an ending application cross with the controller's word; nobody will start it again."""
    lifecycle = running()
    lifecycle.stop_asked(START_MS)
    lifecycle.heartbeat_answered(ErrorCode.none, False, True, START_MS + 10)
    assert lifecycle.cluster_ended


def test_lifecycle_controlled_shutdown_is_bounded_in_time_and_by_the_controllers_absence() -> None:
    """Spark kills a worker that does not go; flushing must come before that."""
    lifecycle = running()
    lifecycle.stop_asked(START_MS)
    lifecycle.tick(START_MS + 9_999)
    assert state_of(lifecycle) is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    lifecycle.tick(START_MS + 10_000)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    assert not lifecycle.cluster_ended

    lifecycle = running()
    lifecycle.controller_gone(60_000)
    assert state_of(lifecycle) is BrokerState.RUNNING
    lifecycle.stop_asked(START_MS)
    lifecycle.controller_gone(499)
    assert state_of(lifecycle) is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    lifecycle.controller_gone(500)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    assert lifecycle.cluster_ended

    lifecycle = running()
    lifecycle.stop_asked(START_MS)
    lifecycle.controller_gone(1, refused=True)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN


def test_lifecycle_told_to_shut_down_goes_without_having_asked() -> None:
    """That is how a whole cluster is stopped: the controller tells every broker at its next heartbeat."""
    lifecycle = running()
    lifecycle.heartbeat_answered(ErrorCode.none, False, True, START_MS)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    assert lifecycle.cluster_ended


def test_lifecycle_told_to_shut_down_with_a_fence_goes_alone_and_is_wanted_back() -> None:
    """A broker whose executor is decommissioned must fail its task, or nobody starts it elsewhere."""
    lifecycle = running()
    lifecycle.heartbeat_answered(ErrorCode.none, True, True, START_MS)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    assert not lifecycle.cluster_ended
    assert lifecycle.failure is None


def test_lifecycle_lease_counts_from_when_the_answered_heartbeat_was_sent() -> None:
    """Counted from the answer, a slow one would let the broker lead longer than the controller waits."""
    lifecycle = running()
    lifecycle.next_request(START_MS + 1_000)
    lifecycle.heartbeat_answered(ErrorCode.none, False, False, START_MS + 2_500)
    assert lifecycle.holds_lease(START_MS + 3_999)
    assert not lifecycle.holds_lease(START_MS + 4_000)
    lifecycle.next_request(START_MS + 4_100)
    lifecycle.request_failed(START_MS + 4_200)
    assert not lifecycle.holds_lease(START_MS + 4_200)


def test_lifecycle_lease_that_ran_out_is_held_again_only_with_metadata_asked_for_afterwards() -> None:
    """A broker that was stopped or cut off may have been deposed; a heartbeat's answer does not tell it."""
    lifecycle = running()
    lifecycle.next_request(START_MS + 5_000)
    lifecycle.heartbeat_answered(ErrorCode.none, False, False, START_MS + 5_010)
    assert not lifecycle.holds_lease(START_MS + 5_020)
    lifecycle.metadata_fetched(START_MS + 5_005)
    assert not lifecycle.holds_lease(START_MS + 5_020)
    lifecycle.metadata_fetched(START_MS + 5_015)
    assert lifecycle.holds_lease(START_MS + 5_020)


def step(lifecycle: BrokerLifecycle, now_ms: int, *, loop_stands_still: bool) -> Leave | Wait | Ask:
    """Step a connected broker that nobody has asked to stop."""
    return lifecycle.step(
        now_ms,
        stop_asked=False,
        is_connected=True,
        unreachable_ms=0,
        is_refused=False,
        loop_stands_still=loop_stands_still,
    )


def test_lifecycle_whose_loop_stands_still_gives_its_lease_up_and_then_asks_to_be_fenced() -> None:
    """Heartbeats of a thread would keep the leaderships of a broker that serves nothing, for ever."""
    lifecycle = running()
    asked = step(lifecycle, START_MS + 100, loop_stands_still=True)
    assert isinstance(asked, Ask)
    assert asked.request.want_fence
    assert not lifecycle.holds_lease(START_MS + 100)
    lifecycle.heartbeat_answered(ErrorCode.none, True, False, START_MS + 110)
    assert not lifecycle.holds_lease(START_MS + 110)


def test_lifecycle_whose_loop_goes_round_again_leads_when_newer_metadata_is_applied() -> None:
    """While the loop stood still others became leaders, and its metadata is of the time before."""
    lifecycle = running()
    step(lifecycle, START_MS + 100, loop_stands_still=True)
    lifecycle.heartbeat_answered(ErrorCode.none, True, False, START_MS + 110)
    asked = step(lifecycle, START_MS + 120, loop_stands_still=False)
    assert isinstance(asked, Ask)
    assert not asked.request.want_fence
    lifecycle.heartbeat_answered(ErrorCode.none, False, False, START_MS + 130)
    assert not lifecycle.holds_lease(START_MS + 130)
    lifecycle.metadata_fetched(START_MS + 125)
    assert not lifecycle.holds_lease(START_MS + 140)
    lifecycle.metadata_fetched(START_MS + 141)
    assert lifecycle.holds_lease(START_MS + 150)
