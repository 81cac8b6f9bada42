"""Which transactional ids a process uses."""

import subprocess
import sys

import pytest

from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.worker_process import WorkerProcess
from sparklog.user.sink.machine.names import SinkId, SinkKind

IN_A_CIRCLE = """
import gc, importlib.machinery, sys, weakref
from sparklog.user.dataframe.worker_process import this_process

class InACircle:
    def __init__(self):
        self.itself = self

found = InACircle()
is_there = weakref.ref(found)
sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec(sys.argv[1], None)
this_process()
del found
gc.collect()
print(is_there() is not None, gc.get_freeze_count() > 0)
"""
QUERY = SinkId(SinkKind.QUERY, "q")


def test_process_uses_an_id_again_for_a_later_batch_only() -> None:
    """The batch before is finished then; ids stay few, and nothing that is prepared is aborted."""
    process = WorkerProcess()
    first, second = (process.writer_id(QUERY, "r", 4) for _ in range(2))
    assert first != second
    assert process.writer_id(QUERY, "r", 5) == first
    assert process.writer_id(QUERY, "r2", 5) not in (first, second)


def test_after_a_failure_no_id_is_used_again() -> None:
    """What was asked with it and not answered may come to be done in the next batch."""
    process = WorkerProcess()
    config = WriteOptions.parse({}, "127.0.0.1:1").client
    asked = process.writer_id(QUERY, "r", 4)
    process.drop(config)
    assert process.writer_id(QUERY, "r", 5) != asked


def test_process_that_writes_to_many_clusters_in_turn_uses_its_ids_again() -> None:
    """A client that is closed for want of room has nothing outstanding; a new id stays for a week."""
    process = WorkerProcess()
    configs = [WriteOptions.parse({}, f"127.0.0.1:{port}").client for port in range(1, 7)]
    ids = set()
    for batch_id in range(5):
        for number, config in enumerate(configs):
            process.client(config)
            ids.add(process.writer_id(SinkId(SinkKind.QUERY, f"q{number}"), "r", batch_id))
    assert len(ids) == len(configs)


def test_task_of_a_batch_before_that_comes_late_has_an_id_of_its_own() -> None:
    """It would abort what the next batch has prepared, which may be decided a moment later."""
    process = WorkerProcess()
    process.writer_id(QUERY, "r", 4)
    prepared = process.writer_id(QUERY, "r", 5)
    late = process.writer_id(QUERY, "r", 4)
    assert process.writer_id(QUERY, "r", 5) not in (prepared, late)
    assert late != prepared


@pytest.mark.parametrize(
    ("module", "is_kept"),
    [("users.application", "False False"), ("pyspark.daemon", "True True")],
)
def test_objects_of_a_users_own_process_can_still_be_collected(module: str, is_kept: str) -> None:
    """Only what a fork of Spark's daemon has imported stays for the life of its process."""
    command = [sys.executable, "-c", IN_A_CIRCLE, module]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == is_kept
