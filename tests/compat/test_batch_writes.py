"""Batch writes with a version and without, as Spark's processes make them; what goes on beside them."""

import itertools
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pytest

from sparklog.jobs.sinks.__main__ import main as sinks
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.worker_process import this_process
from sparklog.user.dataframe.writer import batch_writer
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.errors import GivenUpError
from sparklog.user.sink.machine.steps import CommitDecision, FindAbortedDecider, Step
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import create_topic
from tests.compat.sinks import VALUES, seen

names: Final = (f"batch-writes-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def process(cluster: LocalCluster) -> Iterator[None]:
    """Leave no connections."""
    yield
    this_process().drop(WriteOptions.parse({}, cluster.bootstrap_servers).client)


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = next(names)
    create_topic(cluster.bootstrap_servers, name, partitions=2)
    return name


def begun(cluster: LocalCluster, topic: str, version: int | None = None) -> Any:
    given = {"topic": topic}
    if version is not None:
        given |= {"txnAppId": "etl.daily", "txnVersion": str(version)}
    writer = batch_writer(WriteOptions.parse(given, cluster.bootstrap_servers), VALUES, overwrite=False)
    writer.prepare()
    return writer


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": list(values)})])


def test_version_of_an_application_is_written_once_to_each_topic(cluster: LocalCluster, topic: str) -> None:
    """foreachBatch does a batch again after a failure; the options mean what they do for Delta tables."""
    other = f"{topic}-other"
    create_topic(cluster.bootstrap_servers, other)
    for version, value in ((4, "a"), (4, "again"), (3, "older"), (9, "b")):
        for target in (topic, other):
            writer = begun(cluster, target, version)
            writer.commit([writer.write(rows(value))])
    assert seen(cluster.bootstrap_servers, topic) == seen(cluster.bootstrap_servers, other) == ["a", "b"]


def test_versions_that_a_process_writes_side_by_side_are_whole_or_written_again(
    cluster: LocalCluster, topic: str
) -> None:
    """Two threads of a driver: neither takes the other's rows for its own leavings, nor the other's ids."""
    ahead = begun(cluster, topic, 3)
    messages = [ahead.write(rows("3a"))]
    behind = begun(cluster, topic, 2)
    others = [behind.write(rows("2a")), behind.write(rows("2b"))]
    messages.append(ahead.write(rows("3b")))
    behind.commit(others)
    with pytest.raises(GivenUpError):
        ahead.commit(messages)
    ahead.abort(messages)
    assert seen(cluster.bootstrap_servers, topic) == ["2a", "2b"]
    ahead = begun(cluster, topic, 3)
    messages = [ahead.write(rows("3a")), ahead.write(rows("3b"))]
    behind = begun(cluster, topic, 2)
    behind.commit([behind.write(rows("2a"))])
    with pytest.raises(GivenUpError):
        ahead.commit(messages)
    ahead = begun(cluster, topic, 3)
    ahead.commit([ahead.write(rows("3a")), ahead.write(rows("3b"))])
    assert seen(cluster.bootstrap_servers, topic) == ["2a", "2b", "3a", "3b"]


def test_version_begun_while_the_one_before_is_being_committed_is_spared_by_it(
    cluster: LocalCluster, topic: str
) -> None:
    """A commit aborts what else is open of its run: what another thread begins is of another."""
    before = begun(cluster, topic, 1)
    messages = [before.write(rows("1a"))]
    before.commit(messages)
    following = begun(cluster, topic, 2)
    others = [following.write(rows("2a"))]
    before.abort(messages)
    following.commit(others)
    assert seen(cluster.bootstrap_servers, topic) == ["1a", "2a"]


def test_job_whose_decider_timed_out_before_it_could_commit_decides_again(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's own epochs tell it from an operator who has ended the job."""
    monkeypatch.setattr("sparklog.user.sink.client._DECIDER_TIMEOUT_MS", 1)
    perform = SinkClient.perform
    performed: list[str] = []

    def time_out_first(self: SinkClient, step: Step) -> Any:
        if isinstance(step, CommitDecision) and CommitDecision.__name__ not in performed:
            monkeypatch.undo()  # but for the decider that there is
            wait_for(
                lambda: perform(self, FindAbortedDecider(step.sink)) is not None, "the decider's time-out"
            )
            monkeypatch.setattr(SinkClient, "perform", time_out_first)
        performed.append(type(step).__name__)
        return perform(self, step)

    writer = begun(cluster, topic)
    messages = [writer.write(rows("a")), writer.write(rows("b"))]
    monkeypatch.setattr(SinkClient, "perform", time_out_first)
    writer.commit(messages)
    assert performed[:6] == [
        "WriteDecision",
        "CommitDecision",
        "FindAbortedDecider",
        "InitializeDecider",
        "WriteDecision",
        "CommitDecision",
    ]
    assert seen(cluster.bootstrap_servers, topic) == ["a", "b"]


def test_job_whose_driver_died_hides_what_is_written_after_it_until_an_operator_ends_it(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody does the same job again: what the document says of it has to help."""
    create_topic(cluster.bootstrap_servers, topic := next(names))
    message = begun(cluster, topic).write(rows("nobody commits this"))
    (sink,) = {message.batch.sink.text}
    writer = begun(cluster, topic)
    writer.commit([writer.write(rows("a"))])
    assert seen(cluster.bootstrap_servers, topic) == []
    assert sinks([cluster.bootstrap_servers]) == 0
    assert f"{sink}: 1 open transactions" in capsys.readouterr().out
    assert sinks([cluster.bootstrap_servers, "--end", sink]) == 0
    assert capsys.readouterr().out == f"{sink}: committed 0 transactions, aborted 1\n"
    assert seen(cluster.bootstrap_servers, topic) == ["a"]
