"""Spark's dynamic allocation: the settings that contradict brokers, and the executors that are theirs."""

from typing import Any
from unittest.mock import MagicMock

import pytest

from sparklog.driver.cluster import job_names
from sparklog.driver.spark.dynamic_allocation import check_dynamic_allocation
from sparklog.driver.spark.hosts import hosts_with_executors
from sparklog.driver.spark.open_network import check_barrier_tasks
from sparklog.driver.spark.placement import Placement
from sparklog.driver.spark.slots import BrokerSlots, is_allocated_dynamically
from sparklog.hosting import BrokerAssignment, DynamicAllocationError
from sparklog.node.config import BrokerConfig
from tests.application_secret import SECRET
from tests.unit.driver.spark.java_virtual_machine import context_of

ENABLED = {"spark.dynamicAllocation.enabled": "true"}
BROKERS_PROFILE = 7


def application(settings: dict[str, str], master: str = "spark://there:7077") -> Any:
    """Return the context of an application with these properties."""
    context = context_of(None)
    context.master = master
    context.getConf.return_value.get = settings.get
    return context


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"spark.dynamicAllocation.maxExecutors": "2"}, r"maxExecutors is 2: .* set it to 3 or more"),
        ({"spark.dynamicAllocation.executorAllocationRatio": "0.5"}, r"2 executors for 3 .* set it to 1"),
        (
            {"spark.speculation": "true", "spark.speculation.task.duration.threshold": "60s"},
            r"second copy of each broker; remove spark\.speculation\.task\.duration\.threshold",
        ),
    ],
)
def test_setting_under_which_a_broker_would_not_run_or_run_twice_is_refused_by_its_key(
    settings: dict[str, str], said: str
) -> None:
    """Spark would let the third broker wait for ever, or start a second one beside it, without a word."""
    with pytest.raises(DynamicAllocationError, match=said):
        check_dynamic_allocation(application(ENABLED | settings), 3)
    check_dynamic_allocation(application(settings), 3)
    check_dynamic_allocation(application(ENABLED | settings, "local[4]"), 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.dynamicAllocation.maxExecutors": "3"},
        {"spark.dynamicAllocation.executorAllocationRatio": "0.9"},
        {"spark.speculation": "true"},
        {"spark.speculation.task.duration.threshold": "60s"},
    ],
)
def test_setting_that_lets_each_broker_run_once_is_allowed(settings: dict[str, str]) -> None:
    """Spark speculates on a stage of one task only with a threshold, and rounds executors up."""
    check_dynamic_allocation(application(ENABLED | settings), 3)


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", False), ("local[4]", False), ("local-cluster[2,1,512]", True), ("yarn", True)],
)
def test_dynamic_allocation_is_ignored_in_local_mode(master: str, expected: bool) -> None:
    """As by Spark, which runs barrier stages there all the same."""
    assert is_allocated_dynamically(application(ENABLED, master)) is expected


def test_brokers_that_are_no_barrier_tasks_need_no_private_sockets() -> None:
    """The ports by which users of a host can end an executor are those of barrier tasks."""
    config = BrokerConfig.from_mapping({"listeners": "SASL_SSL://0.0.0.0:9093"})
    check_barrier_tasks(application(ENABLED), config)


class Scala:
    """Executors as Spark's status store lists them: an iterator."""

    def __init__(self, executors: list[MagicMock]) -> None:
        self._executors = list(executors)

    def iterator(self) -> "Scala":
        return Scala(self._executors)

    def hasNext(self) -> bool:  # noqa: N802
        return bool(self._executors)

    def next(self) -> MagicMock:
        return self._executors.pop(0)


def java_context(*executors: tuple[str, str, int], dead: str = "") -> Any:
    """Return Spark's context with executors of (id, host, profile)."""
    context = MagicMock()
    context.statusStore().executorList.return_value = Scala(
        [
            MagicMock(
                **{
                    "id.return_value": executor,
                    "hostPort.return_value": f"{host}:4000",
                    "resourceProfileId.return_value": profile,
                }
            )
            for executor, host, profile in executors
        ]
    )
    context.taskScheduler().isExecutorAlive = lambda executor: executor != dead
    return context


def test_executors_of_the_users_jobs_are_no_places_for_brokers() -> None:
    """Spark runs tasks of a profile on its executors alone, and a host would be searched in vain."""
    spark = java_context(
        ("0", "a", 0), ("1", "a", BROKERS_PROFILE), ("2", "b", BROKERS_PROFILE), ("3", "c", 0), dead="2"
    )
    assert hosts_with_executors(spark, BROKERS_PROFILE) == {"a": 1}


def placement_of_pairs(*executors: tuple[str, str, int]) -> Placement:
    """Return the placement of two racks of two brokers, a job each, none of which runs."""
    context = context_of(None)
    context._jsc.sc.return_value = java_context(*executors)
    context._jsc.sc().statusTracker().getJobIdsForGroup.return_value = []
    profile = MagicMock(id=BROKERS_PROFILE)
    slots = BrokerSlots(context, profile, cores_per_broker=1, takes_resource=False, allocated=True)
    racks = {0: "rack-0", 1: "rack-0", 2: "rack-1", 3: "rack-1"}
    jobs = {f"{rack}-broker-{node_id}": [node_id] for node_id, rack in racks.items()}
    return Placement(slots, jobs, {job: job for job in jobs}, racks)


def test_job_of_a_broker_is_submitted_without_an_executor_and_names_its_home_to_spark() -> None:
    """Only a task that waits makes Spark start an executor, on YARN where the task wants to be."""
    placement = placement_of_pairs()
    placement.set_homes({2: ["a"]})
    assert placement.take_slots("rack-1-broker-2", 0)
    assert placement.preferred("rack-1-broker-2") == [["a"]]
    assert placement.preferred("rack-0-broker-0") == [[]]


def test_racks_whose_brokers_are_jobs_prefer_different_hosts() -> None:
    """The loss of a host costs one rack, not one job."""
    hosts = [(str(number), host, BROKERS_PROFILE) for number, host in enumerate("abcd")]
    placement = placement_of_pairs(*hosts)
    preferred = [placement.preferred(f"rack-{number // 2}-broker-{number}")[0] for number in range(4)]
    assert preferred == [["a", "c"], ["a", "c"], ["b", "d"], ["b", "d"]]


def test_job_has_the_name_of_its_rack_and_of_its_broker_where_the_rack_has_several() -> None:
    """Names are of Spark's job groups, and of what the log says."""

    def broker(node_id: int, rack: str) -> BrokerAssignment:
        return BrokerAssignment(node_id, rack, "driver", 1, SECRET, {}, (), temporary=True, log_level=20)

    jobs = [[broker(0, "a")], [broker(1, "b")], [broker(2, "b")], [broker(3, "c"), broker(4, "c")]]
    assert job_names(jobs) == ["a", "b-broker-1", "b-broker-2", "c"]
