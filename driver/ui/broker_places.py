"""Where Spark runs the brokers: looked up once for each attempt of a rack's job, and remembered."""

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
        # Held, since PySpark forgets it when the context is stopped, which may be in the middle of a look.
        self._context: Any = context._jsc.sc()
        self._racks = tuple(racks)
        self._seen: dict[str, int] = {rack.name: max(1, rack.attempt) for rack in racks}
        """The attempt of each rack of which was told last."""
        self._tasks: dict[str, tuple[int, tuple[BrokerTask | None, ...]]] = {}
        """Of each rack: the attempt, and where its brokers run; kept once all of them do."""

    @property
    def places(self) -> tuple[BrokerPlace, ...]:
        """Every broker, by its rack, with the task as it was looked up last."""
        places = []
        for rack in self._racks:
            attempt, tasks = self._tasks.get(rack.name, (0, ()))
            for number, assignment in enumerate(rack.assignments):
                known = attempt == rack.attempt and number < len(tasks)
                places.append(
                    BrokerPlace(
                        node_id=assignment.node_id,
                        rack=rack.name,
                        attempt=rack.attempt,
                        task=tasks[number] if known else None,
                    )
                )
        return tuple(places)

    def look(self) -> list[tuple[str, str]]:
        """Look where brokers run that were not found yet; return why each rack was restarted since, and
        which.

        Raises:
            Py4JError: the application ends.
        """
        restarted = []
        for rack in self._racks:
            attempt = rack.attempt
            if attempt > self._seen[rack.name]:
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
            except Py4JJavaError:  # Spark does not know the executor yet, or not any more
                continue
            found[task.number] = BrokerTask(
                executor_id=task.executor_id, host=task.host, stage_id=task.stage_id, logs=logs
            )
        return tuple(found.get(number) for number in range(len(rack.assignments)))
