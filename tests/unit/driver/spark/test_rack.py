"""A rack: the pauses between two attempts at it, and when it is given up."""

import logging
from typing import Any

from sparklog.driver.spark.broker_jobs import BrokerJobs
from sparklog.driver.spark.placement import Placement
from sparklog.driver.spark.rack import BACKOFF, STEADY_S, Rack, failures_in_a_row
from sparklog.driver.spark.slots import BrokerSlots
from sparklog.hosting import BrokerAssignment
from tests.application_secret import SECRET
from tests.cluster import wait_for
from tests.unit.driver.spark.java_virtual_machine import context_of


def pauses_s(*lived_s: float) -> list[float]:
    """Return the pause after each of the jobs that lived so long and then failed."""
    pauses, failures = [], 0
    for job_s in lived_s:
        failures = failures_in_a_row(failures, job_s)
        pauses.append(BACKOFF.pause_ms(failures - 1) / 1000)
    return pauses


def test_rack_after_a_series_of_failures_pauses_twice_as_long_up_to_a_bound() -> None:
    """A disk that is gone may come back, and its broker is to be in sync within seconds then."""
    pauses = pauses_s(*[1.0] * 10)
    assert pauses[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert set(pauses[6:]) == {BACKOFF.max_ms / 1000}


def test_rack_after_a_job_that_served_pauses_as_after_the_first_failure() -> None:
    """Brokers that are killed once in a while must not be away longer each time."""
    after_serving = pauses_s(*[1.0] * 10, *[STEADY_S] * 3, 1.0, 1.0)[10:]
    assert after_serving == [0.1, 0.1, 0.1, 0.2, 0.4]


def test_rack_that_waits_for_an_executor_ends_with_the_application() -> None:
    """It waited for as long as the driver's process lived, and kept what was left of the cluster with it."""
    context: Any = context_of(None)
    slots = BrokerSlots(context, profile=None, cores_per_broker=1, takes_resource=False)
    assignment = BrokerAssignment(
        node_id=0,
        rack="rack-0",
        controller_host="127.0.0.1",
        controller_port=1,
        secret=SECRET,
        configuration={},
        directories=(),
        temporary=False,
        log_level=logging.INFO,
    )
    looks: list[None] = []
    ends: list[None] = []

    def no_capacity(_: object) -> int:
        looks.append(None)
        return 0

    context._jsc.sc().maxNumConcurrentTasks.side_effect = no_capacity

    rack = Rack(
        slots,
        [assignment],
        name=assignment.rack,
        placement=Placement(slots, {assignment.rack: [0]}, {assignment.rack: "test"}),
        jobs=BrokerJobs(context),
        on_failed=lambda rack, cause: None,
        on_refused=lambda refusal: None,
        on_ended=lambda: ends.append(None),
    )
    rack.start()
    try:
        wait_for(lambda: len(looks) > 2, "a rack that waits")
        context._jsc.sc().isStopped.return_value = True
        assert rack.join(5)
        assert len(ends) == 1
    finally:
        rack.expect_end()
