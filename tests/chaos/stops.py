"""A sink that stops dead where it is told to: the format `stopping`, for `commit-stops` and `task-stops`.

It is the format `sparklog`, with a look at the file `stop` of the directory that SPARKLOG_STOPS names before
each step of a commit and of a task. If the step is the one that the file names, the file is renamed, which
one process alone can do, and then the process, or what it belongs to, is killed with SIGKILL.
"""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from sparklog.user.client.producer import Producer
from sparklog.user.dataframe.source import SparklogDataSource
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.steps import EndTransactions

PLACE: Final = "SPARKLOG_STOPS"
"""The environment variable; Spark's processes inherit it."""


class Victim(Enum):
    """Who dies at a stop."""

    PROCESS = "the process"
    """Of a task, or of what commits."""
    JVM = "its JVM"
    """Of a task the executor; of what commits the driver."""
    DRIVER = "the driver"


class Stop(NamedTuple):
    """A step before which somebody dies."""

    step: str
    victim: Victim


COMMIT_STEPS: Final = (
    "InitializeDecider",
    "FindLastDecision",
    "ListOpenTransactions",
    "WriteDecision",
    "CommitDecision",
    "commit EndTransactions",
    "AwaitDecision",
    "another ListOpenTransactions",
    "AwaitEnds",
    "the end of the commit",
)
"""Of a run's first commit; what is aborted then depends on what there is."""
ONLY_FIRST: Final = frozenset(COMMIT_STEPS[:3])
"""Who has decided before in a run goes on without these."""
TASK_STEPS: Final = (
    "initialize_writer",
    "index_entry",
    "begin_transaction",
    "send",
    "flush",
    "the task's message",
)
STOPS_OF_COMMITS: Final = tuple(
    Stop(step, victim) for step in COMMIT_STEPS for victim in (Victim.PROCESS, Victim.JVM)
)
STOPS_OF_TASKS: Final = tuple(Stop(step, victim) for step in TASK_STEPS for victim in Victim)


def arm(place: Path, stop: Stop) -> None:
    """Have whoever comes to a step first die there."""
    unfinished = place / "stop.new"
    unfinished.write_text(json.dumps([stop.step, stop.victim.name]))
    unfinished.replace(place / "stop")


def is_armed(place: Path) -> bool:
    """Whether nobody has come to it yet."""
    return (place / "stop").exists()


class StoppingDataSource(SparklogDataSource):
    """Writes streams as `sparklog` does, and stops."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "stopping"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return what writes."""
        return StoppingWriter(super().streamWriter(schema, overwrite))


class StoppingWriter(DataSourceStreamArrowWriter):
    """Stands before a writer, in every process that it is sent to."""

    def __init__(self, writer: DataSourceStreamArrowWriter) -> None:
        self._writer: Any = writer

    def write(self, iterator: Iterator[Any]) -> Any:
        """Write, and stop if a step is the one."""
        message = self._writer.write(iterator)
        _stop_at("the task's message")
        return message

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit, and stop if a step is the one."""
        _is_decided.clear()
        self._writer.commit(messages, batchId)
        _stop_at("the end of the commit")

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort."""
        self._writer.abort(messages, batchId)


_is_decided: Final[list[bool]] = []
"""Not empty from when the batch of the commit that goes on is decided."""


def _before(owner: type[Any], name: str, step_of: Callable[..., str]) -> None:
    actual = getattr(owner, name)

    def stop_or_go_on(self: Any, *arguments: Any, **named: Any) -> Any:
        _stop_at(step_of(*arguments))
        return actual(self, *arguments, **named)

    setattr(owner, name, stop_or_go_on)


def _name(step: Any) -> str:
    name = type(step).__name__
    if isinstance(step, EndTransactions):
        return f"{'commit' if step.commit else 'abort'} {name}"
    if name == "AwaitDecision":
        _is_decided.append(True)
    if name == "ListOpenTransactions" and _is_decided:
        return f"another {name}"
    return name


def _stop_at(step: str) -> None:
    place = Path(os.environ[PLACE])
    try:
        wanted, victim = json.loads((place / "stop").read_text())
    except FileNotFoundError:
        return
    if step != wanted:
        return
    with contextlib.suppress(FileNotFoundError):
        (place / "stop").rename(place / "stopped")
        _kill(Victim[victim])


def _kill(victim: Victim) -> None:
    jvms = [each for each in psutil.Process().parents() if "java" in each.name()]
    if victim is Victim.JVM:
        jvms[0].kill()
    elif victim is Victim.DRIVER:
        jvms[-1].kill()
    os.kill(os.getpid(), signal.SIGKILL)


def _stand_before_each_step() -> None:
    for owner, method, step_of in (
        (SinkClient, "perform", _name),
        (SinkClient, "initialize_writer", lambda *_: "initialize_writer"),
        (SinkClient, "index_entry", lambda *_: "index_entry"),
        (Producer, "begin_transaction", lambda *_: "begin_transaction"),
        (Producer, "send", lambda *_: "send"),
        (Producer, "flush", lambda *_: "flush"),
    ):
        _before(owner, method, step_of)


# Spark's processes of a pipeline have it from their driver; whoever else imports this is left as he is.
if PLACE in os.environ:
    _stand_before_each_step()
