"""The executors of the brokers: looked up once for each attempt of a rack's job, and remembered."""

from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from sparklog.driver.spark.broker_tasks import executor_logs, running_tasks
from sparklog.driver.spark.rack import Rack
from sparklog.driver.ui.machine.status import BrokerTask
from sparklog.driver.ui.machine.status_maker import BrokerPlace


class BrokerPlaces:
    """The places of all racks' brokers; belongs to one thread."""

    def __init__(self, context: SparkContext, racks: Sequence[Rack]) -> None:
        # Kept, since PySpark forgets it when the context is stopped, which may happen during a look-up.
        self._context: Any = context._jsc.sc()
        self._racks = racks
        """The list of the cluster, which changes when it is scaled."""
        self._seen: dict[str, int] = {rack.name: max(1, rack.attempt) for rack in racks}
        """The last reported attempt of each rack."""
        self._tasks: dict[str, tuple[int, tuple[BrokerTask | None, ...]]] = {}
        """By rack: the attempt and its brokers' tasks; kept once all of them run."""

    @property
    def places(self) -> tuple[BrokerPlace, ...]:
        """Return every broker, by its rack, with its task as of the last look-up."""
        places = []
        for rack in tuple(self._racks):
            attempt, tasks = self._tasks.get(rack.name, (0, ()))
            for number, assignment in enumerate(rack.assignments):
                known = attempt == rack.attempt and number < len(tasks)
                places.append(
                    BrokerPlace(
                        node_id=assignment.node_id,
                        rack=assignment.rack,
                        attempt=rack.attempt,
                        task=tasks[number] if known else None,
                    )
                )
        return tuple(places)

    def look(self) -> list[tuple[str, str]]:
        """Look up the tasks of brokers without a known one; return the restarts since the last call.

        Each is the failure, and the rack with its attempt.

        Raises:
            Py4JError: the application is ending.
        """
        restarted = []
        for rack in tuple(self._racks):
            attempt = rack.attempt
            if attempt > self._seen.setdefault(rack.name, max(1, attempt)):
                self._seen[rack.name] = attempt
                restarted.append((rack.last_failure or "", f"{rack.name}, attempt {attempt}"))
            known_attempt, tasks = self._tasks.get(rack.name, (0, ()))
            if known_attempt != attempt or None in tasks:
                self._tasks[rack.name] = attempt, self._look_up(rack)
        return restarted

    def _look_up(self, rack: Rack) -> tuple[BrokerTask | None, ...]:
        found: dict[int, BrokerTask] = {}
        for task in running_tasks(self._context, rack.job_group):
            try:
                logs = executor_logs(self._context, task.executor_id)
            except Py4JJavaError:  # Spark does not know the executor yet, or no longer
                continue
            found[task.number] = BrokerTask(
                executor_id=task.executor_id, host=task.host, stage_id=task.stage_id, logs=logs
            )
        return tuple(found.get(number) for number in range(len(rack.assignments)))
