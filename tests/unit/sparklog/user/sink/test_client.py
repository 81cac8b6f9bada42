"""What a task or a driver asks of a cluster that does not answer, or refuses."""

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.find_coordinator.v4 import response as coordinators
from kio.schema.init_producer_id.v5 import response as initialized

from sparklog.node.serving.requests import Api, Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId
from sparklog.user.dataframe.worker_process import WorkerProcess
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.decisions import WriterTransaction
from sparklog.user.sink.machine.names import SinkId, SinkKind
from sparklog.user.sink.machine.steps import AwaitEnds, WarnOfLeftovers
from tests.unit.sparklog.user.client.brokers import with_brokers
from tests.unit.sparklog.user.client.test_transactional_ids import CoordinatingBrokers

QUERY = SinkId(SinkKind.QUERY, "q")


class BrokersThatAreSlowAtFirst(CoordinatingBrokers):
    """The first request to initialize an id is done when nobody waits for it any more."""

    def __init__(self) -> None:
        super().__init__()
        self.initialized: list[str] = []

    def apis(self, broker_id: BrokerId) -> dict[ApiKey, Api]:
        return super().apis(broker_id) | {ApiKey.INIT_PRODUCER_ID: Api(5, 5, self._initialize)}

    def _initialize(self, request: Request) -> Any:
        self.initialized.append(request.body.transactional_id)
        if len(self.initialized) == 1:
            return Deferred()
        return initialized.InitProducerIdResponse(
            throttle_time=timedelta(0), error_code=ErrorCode.none, producer_id=7, producer_epoch=0
        )


def test_id_that_was_asked_for_without_an_answer_is_not_used_nor_asked_for_again() -> None:
    """The request may come late. It names no producer: it would abort what was written with the id meanwhile,
    this batch's or the next one's, which may be decided by then."""

    def use(brokers: Any) -> None:
        process = WorkerProcess()
        with brokers.client(request_timeout_ms=200) as cluster:
            sink_client = SinkClient(cluster)
            writers = [
                sink_client.initialize_writer(QUERY, process.writer_ids(QUERY, "run", batch_id), None)[0]
                for batch_id in (1, 2)
            ]
        late, *answered = brokers.initialized
        assert [writer.transactional_id for writer in writers] == answered
        assert late not in answered
        assert len(answered) == 2

    with_brokers(use, BrokersThatAreSlowAtFirst())


class BrokersThatKnowNoCoordinator(CoordinatingBrokers):
    """They refuse to say who coordinates, and trying again would not help."""

    def _coordinators(self, body: Any) -> coordinators.FindCoordinatorResponse:
        answer = super()._coordinators(body)
        refused = ErrorCode.transactional_id_authorization_failed
        return replace(
            answer, coordinators=tuple(replace(each, error_code=refused) for each in answer.coordinators)
        )


def test_end_that_is_durable_and_cannot_be_awaited_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The batch is written, whatever the reason: were it to fail, it would be written again."""
    transaction = WriterTransaction(QUERY.writer_id("run", "p", 0), 7, 0)

    def use(brokers: Any) -> None:
        with brokers.client() as cluster:
            assert SinkClient(cluster).perform(AwaitEnds([transaction], True)) == [transaction]

    with_brokers(use, BrokersThatKnowNoCoordinator())
    assert "1 transactions of query-q are committed" in caplog.text


@pytest.mark.parametrize(
    ("sink", "level", "who_ends_it"),
    [
        (
            SinkId(SinkKind.QUERY, "q"),
            logging.WARNING,
            "The query's next batch ends it; where none comes, sparklog-sinks BOOTSTRAP --end query-q does",
        ),
        (
            SinkId(SinkKind.APPLICATION, "a", "t"),
            logging.WARNING,
            "The next write with this txnAppId to the same topic ends it; where none comes, "
            "sparklog-sinks BOOTSTRAP --end app-a@t does",
        ),
        (
            SinkId(SinkKind.JOB, "j"),
            logging.ERROR,
            "Only sparklog-sinks BOOTSTRAP --end job-j ends it: until then, rows that are written "
            "there later stay hidden",
        ),
    ],
    ids=["query", "application", "job"],
)
def test_warning_of_leftovers_names_who_ends_them(
    sink: SinkId, level: int, who_ends_it: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody comes back for a job, and readers of its topic stop before what it left."""

    def use(brokers: Any) -> None:
        with brokers.client() as cluster, caplog.at_level(logging.WARNING):
            cause = KafkaError(ErrorCode.coordinator_not_available, "nobody coordinates")
            SinkClient(cluster).perform(WarnOfLeftovers(sink, cause))

    with_brokers(use)
    (record,) = caplog.records
    assert record.levelno == level
    assert "COORDINATOR_NOT_AVAILABLE: nobody coordinates" in record.getMessage()
    assert record.getMessage().endswith(who_ends_it)
