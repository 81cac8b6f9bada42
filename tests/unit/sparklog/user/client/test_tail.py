"""Waiting at the ends of partitions."""

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import Iterator
from typing import Any

from sparklog.node.serving.requests import Api, Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import BrokerId
from sparklog.user.client.tail import Tail
from tests.unit.sparklog.user.client.brokers import FIRST, SECOND, Brokers, with_brokers
from tests.unit.sparklog.user.client.test_leader_changes import NEVER_MS

BATCH = build_batch([SimpleRecord(value=b"v")])


class OneLeaderHolds(Brokers):
    """The second leader has a record a moment after it is asked; the first one never waits for any."""

    def apis(self, broker_id: BrokerId) -> dict[ApiKey, Api]:
        apis = super().apis(broker_id)
        fetch = apis[ApiKey.FETCH].handler

        def answer(request: Request) -> Any:
            if broker_id != 1:
                self.records = b""
                return fetch(request)
            held = Deferred()

            def arrive() -> None:
                self.records = BATCH
                held.complete(fetch(request))

            asyncio.get_running_loop().call_later(0.05, arrive)
            return held

        return {**apis, ApiKey.FETCH: apis[ApiKey.FETCH]._replace(handler=answer)}


def test_leader_that_does_not_answer_any_more_is_asked_anew() -> None:
    """A query waited for ever at a host that had lost its power, without a word."""

    def use(brokers: Brokers) -> None:
        with brokers.client(request_timeout_ms=300) as client:
            tail = Tail(client, read_committed=True)
            assert not tail.wait({FIRST: 0}, 100)
            brokers.records = BATCH
            waits = [tail.wait({FIRST: 0}, 100) for _ in range(10)]
            assert waits[0] is False, "it is not asked again while its answer may come"
            assert True in waits

    with_brokers(use)


def test_leader_that_does_not_wait_for_records_is_not_asked_without_a_pause() -> None:
    """Apache Kafka answers at once above the last stable offset: each query kept two processes busy."""

    def use(brokers: Brokers) -> None:
        brokers.records = b""
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            tail = Tail(client, read_committed=True)
            for _ in range(4):
                assert not tail.wait({FIRST: 0}, 50)
            assert len(brokers.fetched) <= 12, "hundreds, without a pause"
            # Of another position it is not known that nothing comes.
            brokers.records = BATCH
            assert tail.wait({FIRST: 1}, 5_000)
            assert tail.wait({FIRST: 1}, 5_000), "where records come there is no pause"

    with_brokers(use)


def test_record_of_one_leader_is_noticed_while_there_is_a_pause_with_another() -> None:
    """A transaction that is open in one partition must not delay what is written to the others."""

    def use(brokers: Brokers) -> None:
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            tail = Tail(client, read_committed=True)
            started = time.monotonic()
            assert tail.wait({FIRST: 0, SECOND: 0}, 20_000)
            assert time.monotonic() - started < 10
            assert sorted(brokers.fetched) == [0, 1]

    with_brokers(use, OneLeaderHolds())


@contextlib.contextmanager
def many_open_files() -> Iterator[None]:
    """Have more than 1,024 descriptors open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    with contextlib.ExitStack() as closing:
        closing.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while True:
            descriptor = os.open(os.devnull, os.O_RDONLY)
            closing.callback(os.close, descriptor)
            if descriptor > 1_024:
                break
        yield


def test_record_is_noticed_in_a_process_with_many_open_files() -> None:
    """A notebook has its own files open, and select() takes no descriptor above 1,023."""

    def use(brokers: Brokers) -> None:
        with many_open_files(), brokers.client() as client:
            brokers.records = BATCH
            assert Tail(client, read_committed=True).wait({FIRST: 0}, 5_000)

    with_brokers(use)
