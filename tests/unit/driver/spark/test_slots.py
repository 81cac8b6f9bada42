"""Which of Spark's executors have a slot for a broker, and which are not there yet."""

import itertools
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from sparklog.driver.spark import preflight
from sparklog.driver.spark.slots import BrokerSlots
from sparklog.hosting import TooFewTaskSlotsError
from tests.unit.driver.spark.java_virtual_machine import context_of


class Scala:
    """A Scala collection: what py4j shows of an Option, and of an iterator."""

    def __init__(self, *items: Any) -> None:
        self._items = list(items)

    def iterator(self) -> "Scala":
        return Scala(*self._items)

    def mkString(self, between: str) -> str:  # noqa: N802
        return between.join(map(str, self._items))

    def hasNext(self) -> bool:  # noqa: N802
        return bool(self._items)

    def next(self) -> Any:
        return self._items.pop(0)


class Executors:
    """Executors of two cores each, by their free cores and their running tasks."""

    def __init__(self, **executors: tuple[int, int]) -> None:
        self.executors = executors

    def slots(self) -> BrokerSlots:
        context = context_of(None)
        context.master = "spark://there:7077"
        java_context = context._jsc.sc.return_value
        backend = java_context.schedulerBackend.return_value
        backend.getExecutorIds.return_value.iterator = lambda: Scala(*self.executors)
        backend.getExecutorAvailableCpus = lambda name: Scala(self.executors[name][0])
        running = java_context.taskScheduler.return_value.runningTasksByExecutors.return_value
        running.get = lambda name: Scala(*[tasks for tasks in self.executors[name][1:] if tasks])
        java_context.maxNumConcurrentTasks = lambda _: len(self.executors)
        return BrokerSlots(context, MagicMock(), cores_per_broker=2, takes_resource=False)


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "SLOT_WAIT_S", 0.05)


def test_executors_that_unpack_are_not_those_whose_cores_jobs_have_taken() -> None:
    """Both have no free core, and only the second ones are the user's to free."""
    slots = Executors(free=(2, 0), busy=(0, 2), unpacking=(0, 0)).slots()
    assert (slots.free_for_brokers(), slots.starting_executors()) == (1, 1)


def test_start_that_waits_for_executors_to_unpack_does_not_blame_the_users_jobs() -> None:
    """There are none; the remedy is time, or nothing to unpack."""
    slots = Executors(a=(2, 0), b=(0, 0)).slots()
    with pytest.raises(TooFewTaskSlotsError, match=r"1 have registered and still .*start\.timeout\.ms"):
        preflight.check_slots(slots, 2)
    slots = Executors(a=(2, 0), b=(0, 2)).slots()
    with pytest.raises(TooFewTaskSlotsError, match="end the jobs of yours"):
        preflight.check_slots(slots, 2)


def test_executor_that_unpacks_is_waited_for_as_long_as_a_start_may_take() -> None:
    """An archive of a hundred megabytes takes longer on a busy host than executors take to register."""
    executors = Executors(a=(2, 0), b=(0, 0))
    slots = executors.slots()
    states: Iterator[tuple[int, int]] = iter([(0, 0)] * 9 + [(2, 0)] * 9)
    free_of_b = slots.spark_context._jsc.sc().schedulerBackend().getExecutorAvailableCpus  # type: ignore[attr-defined]

    def next_state(name: str) -> Scala:
        if name == "b":
            executors.executors["b"] = next(states)
        return free_of_b(name)

    slots.spark_context._jsc.sc().schedulerBackend().getExecutorAvailableCpus = next_state  # type: ignore[attr-defined]
    preflight.check_slots(slots, 2, executors_start_within_s=30)


def test_further_broker_may_start_on_the_hosts_of_free_executors_alone() -> None:
    """A search in the slots of running brokers waited for them to end, and the cluster never grew."""
    slots = Executors(a=(0, 1), b=(2, 0), c=(0, 0)).slots()
    listed = [
        MagicMock(**{"id.return_value": name, "hostPort.return_value": f"host-{name}:4000"})
        for name in ("driver", "a", "b", "c")
    ]
    slots.spark_context._jsc.sc().statusStore().executorList.return_value = Scala(*listed)  # type: ignore[attr-defined]
    assert slots.free_hosts() == {"host-b"}


def test_executor_that_spark_was_asked_for_is_waited_for_before_it_registers() -> None:
    """A cluster manager starts a container first, and may pull an image for it."""
    executors = Executors(a=(2, 0))
    slots = executors.slots()
    ids = slots.spark_context._jsc.sc().schedulerBackend().getExecutorIds()  # type: ignore[attr-defined]
    registered, looks = ids.iterator, itertools.count()

    def next_look() -> Scala:
        if next(looks) == 5:
            executors.executors["b"] = (2, 0)
        found = registered()
        assert isinstance(found, Scala)
        return found

    ids.iterator = next_look
    preflight.check_slots(slots, 2, executors_start_within_s=10, is_asked=True)
