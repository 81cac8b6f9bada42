"""A broker's disks in its life: what heartbeats say of them, and when it has to leave."""

from uuid import UUID

from sparklog.executor.control.machine.broker_lifecycle import BrokerDiskError, BrokerLifecycle, BrokerState
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.control.machine.test_broker_lifecycle import (
    EPOCH,
    START_MS,
    registered,
    running,
    state_of,
)

ONE, OTHER = UUID(int=400), UUID(int=500)


def beat(lifecycle: BrokerLifecycle, now_ms: int, *, fenced: bool = False) -> tuple[UUID, ...]:
    """Send a heartbeat that is answered; return the directories that it says are offline."""
    request = lifecycle.next_request(now_ms)
    lifecycle.heartbeat_answered(ErrorCode.none, fenced, False, now_ms)
    offline: tuple[UUID, ...] = request.offline_log_dirs
    return offline


def test_failed_directory_is_told_with_the_next_heartbeat_at_once_and_ever_after() -> None:
    """The controller moves its leaders as soon as it hears of it."""
    lifecycle = running()
    lifecycle.directory_failed(ONE, START_MS + 10, is_last=False)
    assert lifecycle.due_ms == START_MS + 10
    assert beat(lifecycle, START_MS + 10) == (ONE,)
    assert lifecycle.due_ms == START_MS + 510
    assert beat(lifecycle, START_MS + 510) == (ONE,)
    assert state_of(lifecycle) is BrokerState.RUNNING


def test_directory_that_fails_during_a_heartbeat_is_told_with_another_one_at_once() -> None:
    """The one under way says nothing of it, and its answer must not put the next one off."""
    lifecycle = running()
    request = lifecycle.next_request(START_MS + 500)
    lifecycle.directory_failed(ONE, START_MS + 501, is_last=False)
    lifecycle.heartbeat_answered(ErrorCode.none, False, False, START_MS + 502)
    assert request.offline_log_dirs == ()
    assert lifecycle.due_ms == START_MS + 502
    assert beat(lifecycle, START_MS + 502) == (ONE,)
    assert lifecycle.due_ms == START_MS + 1002


def test_broker_without_a_directory_leaves_when_the_controller_has_been_told() -> None:
    """It can keep nothing and promise nothing; a process that starts anew may find its disk mended."""
    lifecycle = running()
    lifecycle.directory_failed(ONE, START_MS + 10, is_last=True)
    assert state_of(lifecycle) is BrokerState.RUNNING
    assert beat(lifecycle, START_MS + 11, fenced=True) == (OTHER, ONE)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN
    assert isinstance(lifecycle.failure, BrokerDiskError)
    assert not lifecycle.cluster_ended


def test_broker_without_a_directory_leaves_though_nobody_answers() -> None:
    """Then its end is what tells the controller."""
    lifecycle = running()
    lifecycle.directory_failed(ONE, START_MS + 10, is_last=True)
    lifecycle.tick(START_MS + 509)
    assert state_of(lifecycle) is BrokerState.RUNNING
    lifecycle.tick(START_MS + 510)
    assert state_of(lifecycle) is BrokerState.SHUTTING_DOWN


def test_broker_with_damaged_replicas_stays_fenced_until_the_controller_knows_of_them() -> None:
    """Unfenced before, it could be elected for what it no longer has."""
    lifecycle = registered()
    lifecycle.has_undeclared_damage = True
    lifecycle.metadata_applied(20, EPOCH, START_MS)
    assert lifecycle.next_request(START_MS).want_fence
    lifecycle.heartbeat_answered(ErrorCode.none, True, False, START_MS)
    lifecycle.has_undeclared_damage = False
    assert not lifecycle.next_request(START_MS + 100).want_fence


def test_broker_that_serves_is_not_fenced_for_a_replica_that_turns_out_damaged() -> None:
    """One replica is said to be lost; the others serve on."""
    lifecycle = running()
    lifecycle.has_undeclared_damage = True
    assert not lifecycle.next_request(START_MS + 500).want_fence
