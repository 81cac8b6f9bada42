"""A streaming query's writers as Spark's processes call them: its tasks, its commits, and how these die."""

import pickle
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from sparklog.user.client.producer import Producer
from sparklog.user.dataframe.delivery import ExactlyOnce
from sparklog.user.dataframe.options import ReadOptions, WriteOptions
from sparklog.user.dataframe.reader import SparklogReader
from sparklog.user.dataframe.stream_writer import stream_writer
from sparklog.user.dataframe.worker_process import this_process
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.names import SinkId, SinkKind
from tests.compat.mortal import MortalProcesses, die

VALUES: Final = StructType([StructField("value", StringType())])
READ: Final = StructType([StructField("value", BinaryType())])
TASK_STEPS: Final = 6
"""Before each of which a task may die: its id, its look, its beginning, a batch, the flush, the message."""


class Query:
    """A streaming query over a topic of its own; each of its runs is a driver's."""

    def __init__(self, bootstrap_servers: str, topic: str, **options: str) -> None:
        self.query_id = topic
        given = {"topic": topic, **{name.replace("__", "."): value for name, value in options.items()}}
        self.options = WriteOptions.parse(given, bootstrap_servers)
        self.sink = SinkId(SinkKind.QUERY, self.query_id)

    @property
    def client(self) -> SinkClient:
        return this_process().client(self.options.client)

    def tasks(self, run_id: str, batch_id: int, *parts: list[str]) -> list[Any]:
        """Return what tasks tell that have written these values; Spark sends it over a socket."""
        messages = []
        for values in parts:
            TaskContext._setTaskContext(None)
            TaskContext._getOrCreate()._localProperties = {
                "sql.streaming.queryId": self.query_id,
                "streaming.sql.batchId": str(batch_id),
                "spark.jobGroup.id": run_id,
            }
            rows = iter([pa.record_batch({"value": values})])
            messages.append(pickle.loads(pickle.dumps(self._writer().write(rows))))
        return messages

    def commit(self, batch_id: int, messages: list[Any]) -> None:
        self._writer().commit(messages, batch_id)

    def abort(self, batch_id: int, messages: list[Any]) -> None:
        self._writer().abort(messages, batch_id)

    def open_transactions(self) -> list[str]:
        prefix = self.sink.writers_prefix
        return [
            each.transactional_id
            for each in self.client.open_transactions()
            if each.transactional_id.startswith(prefix)
        ]

    def _writer(self) -> Any:
        writer = stream_writer(self.options, VALUES)
        writer.prepare()
        return writer


def seen(bootstrap_servers: str, topic: str, **options: str) -> list[str]:
    """Return what a reader of committed records sees, sorted."""
    given = {"subscribe": topic, **{name.replace("__", "."): value for name, value in options.items()}}
    reader = SparklogReader(ReadOptions.parse(given, bootstrap_servers), READ)
    return sorted(
        value.decode()
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for value in batch.column(0).to_pylist()
    )


def commit_that_dies(
    processes: MortalProcesses, query: Query, batch_id: int, messages: list[Any], before: str | int
) -> None:
    """Have a run commit a batch and be killed before a step, by its name or how many come before it."""
    assert processes.run(_commit_or_die, query, batch_id, messages, before) is None, "it was killed"


def task_that_dies(
    processes: MortalProcesses, query: Query, run_id: str, batch_id: int, values: list[str], before: int
) -> None:
    """Have a task write values and be killed before one of its TASK_STEPS."""
    assert processes.run(_write_or_die, query, run_id, batch_id, values, before) is None, "it was killed"


def _commit_or_die(query: Query, batch_id: int, messages: list[Any], before: str | int) -> bool:
    performed: list[str] = []
    perform = SinkClient.perform

    def perform_or_die(self: SinkClient, step: Any) -> Any:
        if before in (len(performed), type(step).__name__):
            die()
        performed.append(type(step).__name__)
        return perform(self, step)

    SinkClient.perform = perform_or_die  # type: ignore[method-assign]
    query.commit(batch_id, messages)
    if before == len(performed):
        die()
    return True


def _write_or_die(query: Query, run_id: str, batch_id: int, values: list[str], before: int) -> bool:
    steps: list[Callable[..., Any]] = [
        SinkClient.initialize_writer,
        SinkClient.index_entry,
        Producer.begin_transaction,
        Producer.send,
        Producer.flush,
    ]
    if before < len(steps):
        step = steps[before]
        owner = SinkClient if step.__qualname__.startswith(SinkClient.__name__) else Producer
        setattr(owner, step.__name__, lambda *_: die())
    write = ExactlyOnce.write

    def write_and_die(*arguments: Any) -> Any:
        write(*arguments)
        die()

    ExactlyOnce.write = write_and_die  # type: ignore[method-assign]
    query.tasks(run_id, batch_id, values)
    return True
