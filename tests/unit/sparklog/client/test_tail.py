"""Waiting at the ends of partitions."""

from sparklog.client.tail import Tail
from sparklog.records.builder import SimpleRecord, build_batch
from tests.unit.sparklog.client.brokers import FIRST, Brokers, with_brokers


def test_leader_that_does_not_answer_any_more_is_asked_anew() -> None:
    """A query waited for ever at a host that had lost its power, without a word."""

    def use(brokers: Brokers) -> None:
        with brokers.client(request_timeout_ms=300) as client:
            tail = Tail(client, read_committed=True)
            assert not tail.wait({FIRST: 0}, 100)
            brokers.records = build_batch([SimpleRecord(value=b"v")])
            waits = [tail.wait({FIRST: 0}, 100) for _ in range(10)]
            assert waits[0] is False, "it is not asked again while its answer may come"
            assert True in waits

    with_brokers(use)
