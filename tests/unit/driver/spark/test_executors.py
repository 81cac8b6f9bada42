"""The number of executors that a cluster manager is asked for."""

import itertools
from typing import Any
from unittest.mock import MagicMock

import pytest

from sparklog.driver.spark import preflight
from sparklog.driver.spark.executors import ExecutorRequests
from sparklog.hosting import TooFewTaskSlotsError
from tests.unit.driver.spark.test_slots import Executors


class Application:
    """An application with one executor on the host `here`, and the numbers that Spark was asked for."""

    def __init__(self, master: str, *, present: int, instances: str | None) -> None:
        executors = Executors(**{f"executor-{number}": (2, 0) for number in range(present)})
        self.executors = executors.executors
        self.slots: Any = executors.slots()
        context = self.slots.spark_context
        context.master = master
        context.getConf.return_value.get = lambda key: (
            instances if key == "spark.executor.instances" else None
        )
        self.java_context = context._jsc.sc()
        alive = self.java_context.taskScheduler().getExecutorsAliveOnHost.return_value
        alive.get.return_value.size.return_value = present
        self.java_context.statusTracker().getExecutorInfos.return_value = [
            MagicMock(**{"host.return_value": "here"})
        ]
        self.java_context.schedulerBackend().getExecutorIds().size.return_value = present

    @property
    def asked(self) -> list[int]:
        return [call.args[0] for call in self.java_context.requestTotalExecutors.call_args_list]


@pytest.mark.parametrize(
    ("instances", "present", "brokers", "asked"),
    [
        ("4", 4, 5, [6]),  # the executor for tasks of the user's own stays
        ("4", 3, 5, [6]),  # one was lost, which YARN starts again by itself
        ("4", 9, 5, [9]),  # the user has asked for more; none of these is given up
        (None, 2, 3, [2 + 1]),  # Spark's own number
        ("4", 3, 2, []),  # as at the start: the cluster manager knows that number
    ],
)
def test_application_asks_for_one_executor_more_for_each_broker_more(
    instances: str | None, present: int, brokers: int, asked: list[int]
) -> None:
    """Numbers that grew with each request would take a queue's whole share while users' jobs hold slots."""
    started = 2 if brokers <= 3 else 3
    application = Application("yarn", present=present, instances=instances)
    requests = ExecutorRequests(application.slots, started)
    assert requests.ask(brokers) is bool(asked)
    requests.ask(brokers)
    assert application.asked == asked * 2


@pytest.mark.parametrize("master", ["spark://there:7077", "local-cluster[3,2,512]", "local[4]"])
def test_master_that_starts_executors_by_itself_is_asked_for_none(master: str) -> None:
    """A number that a standalone master is asked for is its limit, too."""
    application = Application(master, present=3, instances=None)
    assert not ExecutorRequests(application.slots, 3).ask(5)
    assert application.asked == []


def test_executors_that_yarn_has_not_started_yet_are_waited_for_beyond_the_time_for_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files are fetched and unpacked before an executor registers; a start gave up meanwhile."""
    monkeypatch.setattr(preflight, "SLOT_WAIT_S", 0.05)
    application = Application("yarn", present=0, instances="1")
    looks = itertools.count()

    def registered() -> int:
        if next(looks) == 3:
            application.executors["new"] = (2, 0)
        return len(application.executors)

    application.java_context.schedulerBackend().getExecutorIds().size = registered
    preflight.check_slots(application.slots, 1, executors_start_within_s=10)
    with pytest.raises(TooFewTaskSlotsError, match="2 brokers need 2 executors"):
        preflight.check_slots(application.slots, 2, executors_start_within_s=10)
