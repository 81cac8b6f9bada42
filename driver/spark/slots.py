"""Slots for brokers: the resources that a broker's task requests of an executor, and how many brokers fit.

One broker to an executor, so that the loss of one executor is the loss of one broker. Stage-level resources
(a `TaskResourceProfile`) tell Spark so: a broker's task requests either the executor's only `broker`
resource, if the application defines one (`spark.executor.resource.broker.amount=1`), which leaves the other
slots to ordinary tasks, or else all of the executor's cores. In local mode there are no executors and no
profiles: each task is a Python process of its own, and takes one slot.

Under dynamic allocation Spark runs a profile's tasks on executors of that profile alone, and starts them for
it: brokers have executors of their own, whose size is the profile's (`spark.sparklog.executor.cores`,
`memory` and `memoryOverhead`), and the `broker` resource is not needed.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark import SparkContext
from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfile,
    ResourceProfileBuilder,
    TaskResourceRequests,
)

from sparklog.driver.spark.broker_jobs import BrokerJobs
from sparklog.hosting import TooFewTaskSlotsError

BROKER_RESOURCE = "broker"
_OWN_EXECUTOR: Final = "spark.sparklog.executor"
"""The beginning of the properties of brokers' executors under dynamic allocation."""


@dataclass(frozen=True, slots=True)
class BrokerSlots:
    spark_context: SparkContext
    profile: ResourceProfile | None
    """`None` in local mode, where every task takes one slot."""
    cores_per_broker: int
    takes_resource: bool
    allocated: bool = False
    """Whether brokers have executors of their own, which dynamic allocation starts for tasks that wait."""

    @property
    def executor_profile(self) -> int | None:
        """The id of the profile of the executors that brokers may run on; None for any executor."""
        if not self.allocated:
            return None
        assert self.profile is not None, "dynamic allocation has executors"
        return int(self.profile.id)

    def broker_capacity(self) -> int:
        """Return how many brokers could run at once on the registered executors."""
        return self._maximum_concurrent_tasks(self.profile)

    def capacity_of(self, executors: int) -> int:
        """Return how many brokers could run at once on so many of the registered executors.

        Spark counts an executor for some time before it runs tasks.
        """
        capacity = self.broker_capacity()
        if self.profile is None:
            return capacity
        java_context: Any = self.spark_context._jsc.sc()
        registered = int(java_context.schedulerBackend().getExecutorIds().size())
        return capacity * min(executors, registered) // max(registered, 1)

    def free_for_brokers(self) -> int:
        """Return how many brokers could start now, besides all running tasks."""
        java_context: Any = self.spark_context._jsc.sc()
        if self.profile is None:
            running = java_context.taskScheduler().runningTasksByExecutors().valuesIterator()
            return self.task_capacity() - sum(int(count) for count in _iterated(running))
        backend = java_context.schedulerBackend()
        return sum(self._free_on(backend, each) for each in _iterated(backend.getExecutorIds().iterator()))

    def free_hosts(self) -> set[str]:
        """Return the hosts, by Spark's names, on which a broker could start now; none in local mode.

        Raises:
            Py4JError: the application is ending.
        """
        if self.profile is None:
            return set()
        java_context: Any = self.spark_context._jsc.sc()
        backend = java_context.schedulerBackend()
        registered = set(_iterated(backend.getExecutorIds().iterator()))
        return {
            str(executor.hostPort()).rpartition(":")[0]
            for executor in _iterated(java_context.statusStore().executorList(True).iterator())
            if self.executor_profile in (None, executor.resourceProfileId())
            and executor.id() in registered
            and self._free_on(backend, executor.id())
        }

    def _free_on(self, backend: Any, executor: str) -> int:
        """Return how many brokers could start now on an executor."""
        brokers = _free_cores(backend, executor) // self.cores_per_broker
        if self.takes_resource:
            resource = backend.getExecutorAvailableResources(executor).get(BROKER_RESOURCE)
            brokers = min(brokers, 0 if resource.isEmpty() else int(resource.get().availableAddrs().size()))
        return brokers

    def starting_executors(self) -> int:
        """Return how many executors have registered, and fetch and unpack files before they run tasks.

        Spark gives them their cores when they are done (CoarseGrainedSchedulerBackend's LaunchedExecutor).
        """
        if self.profile is None:
            return 0
        java_context: Any = self.spark_context._jsc.sc()
        backend = java_context.schedulerBackend()
        running = java_context.taskScheduler().runningTasksByExecutors()
        return sum(
            not _free_cores(backend, executor) and running.get(executor).iterator().mkString("") in ("", "0")
            for executor in _iterated(backend.getExecutorIds().iterator())
        )

    def task_capacity(self) -> int:
        """Return how many ordinary tasks could run at once without brokers."""
        return self._maximum_concurrent_tasks(None)

    def _maximum_concurrent_tasks(self, profile: ResourceProfile | None) -> int:
        context: Any = self.spark_context._jsc.sc()
        java_profile = (
            context.resourceProfileManager().defaultResourceProfile()
            if profile is None
            else profile._java_resource_profile
        )
        return int(context.maxNumConcurrentTasks(java_profile))


def broker_slots(spark_context: SparkContext) -> BrokerSlots:
    """Return the slots for brokers in this application.

    Raises:
        TooFewTaskSlotsError: The cores of an executor are unknown, so that no task can request all.
    """
    if is_local_mode(spark_context):
        return BrokerSlots(spark_context, profile=None, cores_per_broker=1, takes_resource=False)
    if is_allocated_dynamically(spark_context):
        return _own_executors(spark_context)
    requests = TaskResourceRequests()
    takes_resource = (
        spark_context.getConf().get(f"spark.executor.resource.{BROKER_RESOURCE}.amount") is not None
    )
    if takes_resource:
        cores = 1
        requests.cpus(cores).resource(BROKER_RESOURCE, 1)
    else:
        cores = _executor_cores(spark_context)
        requests.cpus(cores)
    profile = ResourceProfileBuilder().require(requests).build
    _register(spark_context, profile)
    return BrokerSlots(spark_context, profile, cores_per_broker=cores, takes_resource=takes_resource)


def is_allocated_dynamically(spark_context: SparkContext) -> bool:
    """Return whether Spark's dynamic allocation is on; local mode ignores the property."""
    is_set = spark_context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    return is_set and not is_local_mode(spark_context)


def executor_memory(spark_context: SparkContext) -> str:
    """Return the heap of a broker's own executor, in which no data of brokers or users lies."""
    return spark_context.getConf().get(f"{_OWN_EXECUTOR}.memory") or "512m"


def _own_executors(spark_context: SparkContext) -> BrokerSlots:
    settings = spark_context.getConf()
    cores = int(settings.get(f"{_OWN_EXECUTOR}.cores") or 1)
    overhead = settings.get(f"{_OWN_EXECUTOR}.memoryOverhead") or "512m"
    size = ExecutorResourceRequests().cores(cores).memory(executor_memory(spark_context))
    requests = TaskResourceRequests().cpus(cores)
    profile = ResourceProfileBuilder().require(size.memoryOverhead(overhead)).require(requests).build
    _register(spark_context, profile)
    return BrokerSlots(spark_context, profile, cores, takes_resource=False, allocated=True)


def _register(spark_context: SparkContext, profile: ResourceProfile) -> None:
    # An RDD would register it; the capacity is requested before there is one.
    java_context: Any = spark_context._jsc.sc()
    java_context.resourceProfileManager().addResourceProfile(profile._java_resource_profile)


@contextlib.contextmanager
def waiting_job(
    slots: BrokerSlots, jobs: BrokerJobs, job_group: str, description: str, call_site: str, wanted: int
) -> Iterator[None]:
    """Show a job in Spark's UI that waits for `wanted` brokers' slots, during the block.

    Its tasks are Spark's own and do nothing; one that gets a slot ends at once.
    """
    context = slots.spark_context
    java_virtual_machine: Any = context._jvm
    numbers = java_virtual_machine.java.util.ArrayList()
    for number in range(wanted):
        numbers.add(number)
    tasks = context._jsc.parallelize(numbers, wanted)
    if slots.profile is not None:
        tasks = tasks.withResources(slots.profile._java_resource_profile)
    context.setJobGroup(job_group, description)
    context._jsc.setCallSite(call_site)
    with jobs.running(tasks.countAsync) as waiting:
        try:
            yield
        finally:
            waiting.cancel(True)


def is_local_mode(spark_context: SparkContext) -> bool:
    return re.match(r"local($|\[)", str(spark_context.master)) is not None


def _iterated(java_iterator: Any) -> Iterator[Any]:
    while java_iterator.hasNext():
        yield java_iterator.next()


def _free_cores(backend: Any, executor: str) -> int:
    # As text: py4j takes Scala's decimals for integers. An executor that has just ended has none.
    return int(float(backend.getExecutorAvailableCpus(executor).iterator().mkString("") or 0))


def _executor_cores(spark_context: SparkContext) -> int:
    local_cluster = re.match(r"local-cluster\[\s*\d+\s*,\s*(\d+)\s*,", str(spark_context.master))
    if local_cluster:
        return int(local_cluster.group(1))
    configured = spark_context.getConf().get("spark.executor.cores")
    if configured is not None:
        return int(configured)
    if str(spark_context.master).startswith("spark://"):
        raise TooFewTaskSlotsError(
            "spark.executor.cores is not set, so a standalone executor takes all cores of its worker and a "
            "broker can't be kept one to an executor: set spark.executor.cores, or define the resource "
            f"spark.executor.resource.{BROKER_RESOURCE}.amount=1 (docs/deploy.md)"
        )
    return 1
