"""As whom tasks write, beside brokers on loopback."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from sparklog.user.dataframe import delivery
from sparklog.user.dataframe.delivery import AtLeastOnce
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.worker_process import WorkerProcess
from tests.unit.sparklog.user.client.brokers import Brokers, with_brokers
from tests.unit.sparklog.user.client.test_producer import Appended, BrokersThatNameProducers

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
ROW = pa.record_batch({"key": [b"k"], "value": [b"v"]})


@contextmanager
def tasks_of_a_process(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> Iterator[AtLeastOnce]:
    """Have what writes in a process of its own, with connections of its own."""
    process = WorkerProcess()
    monkeypatch.setattr(delivery, "this_process", lambda: process)
    address = f"127.0.0.1:{brokers.listeners[-1].port}"
    given = {"topic": "t", "kafka.bootstrap.servers": address, "deliveryGuarantee": "atLeastOnce"}
    options = WriteOptions.parse(given, None)
    yield AtLeastOnce(options, SCHEMA)
    process.drop(options.client)


def test_tasks_of_a_process_are_one_producer_to_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each replica remembers a producer for a day, and small batches of a stream are thousands of tasks."""
    brokers = BrokersThatNameProducers()

    def use(_: Brokers) -> None:
        with tasks_of_a_process(brokers, monkeypatch) as tasks:
            for _ in range(3):
                tasks.write(iter([ROW, ROW]))
            tasks.write(iter([]))

    with_brokers(use, brokers)
    assert brokers.batches == [Appended(1, epoch, 0) for epoch in range(3)]
    assert brokers.producer_count == 1


def test_task_after_one_that_failed_is_another_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other one sent may still arrive."""
    brokers = BrokersThatNameProducers()

    def failing() -> Iterator[pa.RecordBatch]:
        yield ROW
        raise ValueError("the query's own")

    def use(_: Brokers) -> None:
        with tasks_of_a_process(brokers, monkeypatch) as tasks:
            tasks.write(iter([ROW]))
            with pytest.raises(ValueError, match="own"):
                tasks.write(failing())
            tasks.write(iter([ROW]))

    with_brokers(use, brokers)
    assert brokers.batches == [Appended(1, 0, 0), Appended(2, 0, 0)]


def test_task_in_another_cluster_at_the_same_address_is_another_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An application's cluster was started anew, and has given the same id to somebody else."""
    brokers = BrokersThatNameProducers()

    def use(_: Brokers) -> None:
        with tasks_of_a_process(brokers, monkeypatch) as tasks:
            for brokers.cluster_id in ("c", "another"):
                tasks.write(iter([ROW]))

    with_brokers(use, brokers)
    assert brokers.batches == [Appended(1, 0, 0), Appended(2, 0, 0)]
