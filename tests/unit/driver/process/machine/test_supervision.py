"""When the controller's process is started again, and what the next one hears."""

from sparklog.driver.process.machine.supervision import (
    FAILURES_BEFORE_START_ALLOWED,
    STEADY_MS,
    BrokerLost,
    GiveUp,
    KillChild,
    RestartAt,
    ShutDownBroker,
    ShutDownBrokers,
    StartChild,
    StopController,
    StopInOrder,
    Supervision,
    Tell,
)


def leading() -> Supervision:
    """Return a machine whose first process leads."""
    machine = Supervision()
    assert machine.begin(0) == [StartChild(1)]
    assert machine.child_leads({}) == []
    return machine


def restarted(machine: Supervision, now_ms: int) -> int:
    """Let the process end and start the next one; return the pause."""
    (restart,) = machine.child_ended("signal 9", now_ms)
    assert isinstance(restart, RestartAt)
    assert machine.tick(restart.at_ms - 1) == [restart]
    assert machine.tick(restart.at_ms) == [StartChild(machine.attempt)]
    return restart.at_ms - now_ms


def test_process_that_ends_is_started_again_after_pauses_that_grow_until_it_is_steady() -> None:
    """One kill costs next to nothing; a process that can't live does not keep a processor busy."""
    machine = leading()
    pauses, now_ms = [], 0
    for _ in range(9):
        pauses.append(restarted(machine, now_ms))
        now_ms += pauses[-1]
    assert pauses == [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    assert restarted(machine, now_ms + STEADY_MS) == 50


def test_pauses_between_processes_that_lead_stay_short_however_often_they_are_killed() -> None:
    """The cluster is without a controller for the pause and a start: at the eighth kill that was 5 s more."""
    machine = leading()
    pauses, now_ms = [], 0
    for _ in range(9):
        pauses.append(restarted(machine, now_ms))
        now_ms += pauses[-1]
        machine.child_leads({})
    assert pauses == [50, 100, 200, 400, 500, 500, 500, 500, 500]


def test_start_whose_processes_end_before_one_has_led_fails() -> None:
    """A module that is missing is missing the next time, too; a start must not wait for ever."""
    machine = Supervision()
    machine.begin(0)
    for number in range(1, FAILURES_BEFORE_START_ALLOWED):
        assert restarted(machine, number) > 0
    assert machine.child_ended("exit status 1", 10) == [GiveUp("exit status 1")]
    assert machine.tick(100_000) == []


def test_broker_that_has_to_leave_is_named_to_each_process_until_its_rack_is_tried_again() -> None:
    """The process may have ended before anything was decided; the broker's successor has to stay."""
    machine = leading()
    lost = [Tell(BrokerLost(0)), Tell(ShutDownBroker(0, "the job has failed"))]
    assert machine.broker_leaves(0, 1, "the job has failed", is_lost=True) == lost
    leaves = [Tell(ShutDownBroker(1, "decommissioned"))]
    assert machine.broker_leaves(1, 3, "decommissioned", is_lost=False) == leaves
    restarted(machine, 0)
    assert machine.child_leads({0: 1, 1: 3}) == lost + leaves
    restarted(machine, 0)
    assert machine.child_leads({0: 2, 1: 3}) == leaves


def test_instructions_without_a_leader_wait_for_the_next_one() -> None:
    """An executor may be decommissioned, and the cluster stopped, while there is no controller."""
    machine = leading()
    restarted(machine, 0)
    assert machine.broker_leaves(0, 1, "decommissioned", is_lost=False) == []
    assert machine.cluster_leaves() == []
    assert machine.child_leads({0: 1}) == [Tell(ShutDownBroker(0, "decommissioned")), Tell(ShutDownBrokers())]
    assert machine.child_leads({0: 1}) == []


def test_process_that_says_why_it_failed_is_not_started_again() -> None:
    """Another driver has taken the cluster over, for instance: two would fight for it."""
    machine = leading()
    assert machine.child_failed() == []
    assert machine.child_ended("exit status 1", 1) == []
    assert machine.tick(100_000) == []


def test_stop_ends_the_process_in_order_if_it_leads_and_else_at_once() -> None:
    """A process that has not led has nothing to close; one that ends then is not started again."""
    machine = leading()
    assert machine.stop() == [Tell(StopController())]
    assert machine.child_ended("exit status 0", 1) == []
    assert machine.stop() == []
    machine = Supervision()
    machine.begin(0)
    assert machine.stop() == [KillChild()]
    machine = leading()
    (restart,) = machine.child_ended("signal 9", 0)
    assert isinstance(restart, RestartAt)
    assert machine.stop() == []
    assert machine.tick(restart.at_ms) == []


def test_orderly_stop_is_repeated_to_a_process_that_is_started_amid_it() -> None:
    """The one before may have ended before a broker heard of it; once brokers leave it is of no use."""
    machine = leading()
    stop = Tell(StopInOrder(5_000))
    assert machine.stop_in_order(5_000) == [stop]
    restarted(machine, 1_000)
    assert machine.child_leads({}) == [stop]
    machine.cluster_leaves()
    restarted(machine, 200_000)
    assert machine.child_leads({}) == [Tell(ShutDownBrokers())]
