"""The jobs that a driver starts and ends for the size of its cluster."""

from typing import Any

from sparklog.driver.machine.scaling import EndJob, ReplaceJob, Retries, StartJob, is_reached, next_steps

THREE = {"rack-0": [0], "rack-1": [1], "rack-2": [2]}
ALL = (0, 1, 2, 3)
PAIRS = {"rack-0": [0, 1], "rack-1": [2, 3]}


def test_more_racks_and_more_brokers_a_rack_get_jobs_of_their_own() -> None:
    """A barrier job has a fixed number of tasks: those that run are not touched."""
    wanted = {"rack-0": [0, 1000], "rack-1": [1, 1001], "rack-2": [2, 1002], "rack-3": [3, 1003]}
    steps = next_steps(THREE, wanted, surplus=(), drained=(), registered=(0, 1, 2), unfenced=(0, 1, 2))
    assert steps == [
        StartJob("rack-0-broker-1000", "rack-0", (1000,)),
        StartJob("rack-1-broker-1001", "rack-1", (1001,)),
        StartJob("rack-2-broker-1002", "rack-2", (1002,)),
        StartJob("rack-3", "rack-3", (3, 1003)),
    ]


def test_jobs_end_when_all_their_brokers_are_drained_and_not_before() -> None:
    """The controller says when no replica and no vote is left on a broker."""
    wanted = {"rack-0": [0]}
    assert next_steps(THREE, wanted, surplus=(1, 2), drained=(), registered=ALL, unfenced=(0, 1, 2)) == []
    assert next_steps(THREE, wanted, surplus=(1, 2), drained=(2,), registered=ALL, unfenced=(0, 1, 2)) == [
        EndJob("rack-2")
    ]


def test_job_with_brokers_that_stay_is_replaced_once_all_others_are_in_sync() -> None:
    """They start again: two racks at a time would take a partition's majority."""
    wanted = {"rack-0": [0], "rack-1": [2]}
    assert next_steps(
        PAIRS, wanted, surplus=(1, 3), drained=(1, 3), registered=ALL, unfenced=(0, 1, 2, 3)
    ) == [ReplaceJob("rack-0", (0,))]
    half = {"rack-0": [0], "rack-1": [2, 3]}
    state: dict[str, Any] = {"surplus": (3,), "drained": (3,), "registered": ALL, "unfenced": (0, 2, 3)}
    assert next_steps(half, wanted, **state, may_restart=False) == []
    assert next_steps(half, wanted, **state) == [ReplaceJob("rack-1", (2,))]
    state["unfenced"] = (2, 3)
    assert next_steps(half, wanted, **state) == [ReplaceJob("rack-1", (2,))], "broker 0 has no replica left"


def test_job_is_not_replaced_before_brokers_of_the_last_replaced_one_are_registered_again() -> None:
    """A broker that ends and starts again within one look is unfenced all the time, and out of sync."""
    half = {"rack-0": [0], "rack-1": [2, 3]}
    state = {"surplus": (3,), "drained": (3,), "registered": ALL, "unfenced": ALL}
    wanted = {"rack-0": [0], "rack-1": [2]}
    assert next_steps(half, wanted, **state, restarting=(0,)) == []
    assert next_steps(half, wanted, **state, restarting=()) == [ReplaceJob("rack-1", (2,))]


def test_job_that_does_not_serve_is_replaced_whatever_the_others_do() -> None:
    """It may wait for an executor that never comes, and the smaller one needs none more."""
    wanted = {"rack-0": [0], "rack-1": [2]}
    state: dict[str, Any] = {"surplus": (1, 3), "registered": ALL}
    state["may_restart"] = False
    assert next_steps(PAIRS, wanted, **state, drained=(1,), unfenced=(2, 3)) == [ReplaceJob("rack-0", (0,))]
    assert next_steps(PAIRS, wanted, **state, drained=(1, 3), unfenced=(2, 3)) == [ReplaceJob("rack-0", (0,))]
    assert next_steps(PAIRS, wanted, **state, drained=(1,), unfenced=(1, 2, 3)) == [], "broker 1 serves"


def test_job_of_surplus_brokers_alone_ends_whatever_the_others_do() -> None:
    """One that is away may wait for the executor that a drained broker of another rack still has."""
    jobs = {"rack-0": [0], "rack-1": [1], "rack-1-broker-1001": [1001]}
    state = {"surplus": (1001,), "drained": (1001,), "registered": (0, 1, 1001), "unfenced": (1, 1001)}
    wanted = {"rack-0": [0], "rack-1": [1]}
    assert next_steps(jobs, wanted, **state, may_restart=False) == [EndJob("rack-1-broker-1001")]


def test_size_is_reached_when_exactly_its_brokers_run_and_serve() -> None:
    """`Cluster.scale` returns then."""
    wanted = {"rack-0": [0], "rack-1": [1]}
    assert not is_reached(THREE, wanted, surplus=(), unfenced=(0, 1, 2))
    assert not is_reached(wanted, wanted, surplus=(), unfenced=(0,))
    assert not is_reached(wanted, wanted, surplus=(2,), unfenced=(0, 1))
    assert is_reached(wanted, wanted, surplus=(), unfenced=(0, 1))


def test_job_of_a_given_up_growth_ends_at_once() -> None:
    """Its brokers got no slots, or were refused: without a registration there is nothing to drain."""
    jobs = THREE | {"rack-3": [3]}
    given_up = next_steps(jobs, THREE, surplus=(), drained=(), registered=(0, 1, 2), unfenced=(0, 1, 2))
    assert given_up == [EndJob("rack-3")]
    pairs = {"rack-0": [0], "rack-1": [2]}
    assert next_steps(PAIRS, pairs, surplus=(3,), drained=(), registered=(0, 2, 3), unfenced=(0, 2, 3)) == [
        ReplaceJob("rack-0", (0,))
    ]
    assert next_steps(jobs, THREE, surplus=(3,), drained=(), registered=ALL, unfenced=ALL) == []


def test_jobs_end_before_others_start() -> None:
    """The slots of those that leave may be the ones that the others need."""
    jobs = {"rack-0": [0], "rack-1": [1]}
    wanted = {"rack-0": [0, 1000]}
    assert next_steps(jobs, wanted, surplus=(1,), drained=(1,), registered=(0, 1), unfenced=(0, 1)) == [
        EndJob("rack-1"),
        StartJob("rack-0-broker-1000", "rack-0", (1000,)),
    ]


def test_step_that_failed_waits_while_those_of_other_jobs_go_on() -> None:
    """A host that cannot be searched for a new broker must not keep another rack from ending."""
    retries = Retries()
    start, end = StartJob("rack-3", "rack-3", (3,)), EndJob("rack-2")
    assert retries.due([start, end], now_ms=0) == start
    retries.failed(start, now_ms=0)
    assert retries.due([start, end], now_ms=999) == end
    assert retries.due([start, end], now_ms=1_000) == start
    retries.failed(start, now_ms=1_000)
    assert retries.due([start], now_ms=2_999) is None
    retries.succeeded(start)
    assert retries.due([start], now_ms=2_999) == start


def test_surplus_broker_with_replicas_and_no_job_is_started_so_that_it_can_be_drained() -> None:
    """An application that is started again amid a shrinking has the smaller size from its first moment on."""
    arguments = {
        "wanted": {"rack-0": [0], "rack-1": [1]},
        "surplus": [2, 1001],
        "drained": [],
        "registered": [0, 1, 2, 1001],
        "unfenced": [0, 1],
        "returning": {"rack-2": [2], "rack-1": [1001]},
    }
    jobs = {"rack-0": [0], "rack-1": [1]}
    assert next_steps(jobs, **arguments) == [
        StartJob("rack-1-broker-1001", "rack-1", (1001,)),
        StartJob("rack-2", "rack-2", (2,)),
    ]
    started = {**jobs, "rack-2": [2], "rack-1-broker-1001": [1001]}
    assert next_steps(started, **arguments) == []
    drained = {**arguments, "drained": [2, 1001], "returning": {}}
    assert next_steps(started, **drained) == [EndJob("rack-2"), EndJob("rack-1-broker-1001")]
