"""What is counted of a request: by API, version, kind and error code, with the parts of its time."""

import datetime
from collections import defaultdict
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.add_partitions_to_txn.v5 import response as add_response
from kio.schema.produce.v13 import response as produce_response

from sparklog.node.metrics import network
from sparklog.node.metrics.names import COUNT, QUANTILES, MetricName
from sparklog.node.metrics.registry import values_of_samples
from sparklog.node.serving.request_metrics import RequestMetrics, api_name, kind_of_fetch
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.apis import ApiKey, request_type
from sparklog.protocol.codec.error_counts import count_error_codes
from sparklog.protocol.errors import ErrorCode


def values_of(metrics: RequestMetrics) -> dict[MetricName, float]:
    """Return every figure."""
    return values_of_samples(metrics.samples(0))


def test_request_that_never_waited_is_local_time_alone_and_one_that_waited_both() -> None:
    """Where a p99 comes from, the loop or the followers, is the first thing that is asked about it."""
    metrics = RequestMetrics()
    produce = metrics.of("Produce")
    produce.answered(13, 1000, 0.010, None, 0.0)
    produce.answered(13, 1000, 0.100, 0.020, 0.5)
    values = values_of(metrics)

    def value(metric: Any, attribute: str, **tags: str) -> float:
        return values[metric.of(attribute, request="Produce", **tags)]

    assert value(network.REQUESTS, COUNT, version="13") == 2
    assert value(network.TOTAL_TIME, "Max") == pytest.approx(100, rel=0.05)
    assert value(network.LOCAL_TIME, "Max") == pytest.approx(20, rel=0.05)
    assert value(network.REMOTE_TIME, "Max") == pytest.approx(80, rel=0.05)
    assert value(network.REMOTE_TIME, "50thPercentile") == 0
    assert value(network.REMOTE_TIME, COUNT) == 2
    assert value(network.THROTTLE_TIME, "Max") == pytest.approx(500, rel=0.05)
    assert value(network.RESPONSE_QUEUE_TIME, "Max") == 0
    assert value(network.REQUEST_BYTES, "Max") == pytest.approx(1000, rel=0.05)


def test_request_metrics_have_kafkas_percentiles() -> None:
    """Boards that were made for Kafka ask for these."""
    metrics = RequestMetrics()
    metrics.of("Fetch").answered(17, 100, 0.1, None, 0.0)
    attributes = {name.attribute for name in values_of(metrics) if name.name == "TotalTimeMs"}
    assert attributes == {"Count", "Mean", *QUANTILES.values()}


def test_error_codes_of_single_partitions_are_counted() -> None:
    """A broker may refuse every partition of every request, and no answer as a whole is an error."""
    row = produce_response.PartitionProduceResponse(
        index=0,
        error_code=ErrorCode.not_leader_or_follower,
        base_offset=-1,
        log_append_time=None,
        log_start_offset=-1,
        record_errors=(),
    )
    fine = replace(row, index=1, error_code=ErrorCode.none)
    topic = produce_response.TopicProduceResponse(topic_id=UUID(int=5), partition_responses=(row, fine, fine))
    response = unthrottled(produce_response.ProduceResponse, responses=(topic, topic))
    errors: defaultdict[ErrorCode, int] = defaultdict(int)
    count_error_codes(response, errors)
    assert errors == {ErrorCode.not_leader_or_follower: 2, ErrorCode.none: 4}


def test_errors_of_partitions_that_are_added_to_transactions_are_counted() -> None:
    """AddPartitionsToTxn alone has another name for them."""
    refused, added = (
        add_response.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in enumerate((ErrorCode.not_coordinator, ErrorCode.none))
    )
    topic = add_response.AddPartitionsToTxnTopicResult(name="t", results_by_partition=(refused, added))
    of_id = add_response.AddPartitionsToTxnResult(transactional_id="a", topic_results=(topic,))
    response = unthrottled(
        add_response.AddPartitionsToTxnResponse, error_code=ErrorCode.none, results_by_transaction=(of_id,)
    )
    errors: defaultdict[ErrorCode, int] = defaultdict(int)
    count_error_codes(response, errors)
    assert errors == {ErrorCode.not_coordinator: 1, ErrorCode.none: 2}


@pytest.mark.parametrize("version", [4, 14, 15, 17])
@pytest.mark.parametrize(("replica_id", "kind"), [(-1, "FetchConsumer"), (2, "FetchFollower")])
def test_fetch_is_measured_by_who_asks(version: int, replica_id: int, kind: str) -> None:
    """A follower's fetch is a part of every produce, a consumer's may wait for records all day."""
    entity_type = request_type(ApiKey.FETCH, version)
    state: dict[str, Any] = {"replica_id": replica_id}
    if version >= 15:
        module = __import__(entity_type.__module__, fromlist=["ReplicaState"])
        state = {"replica_state": module.ReplicaState(replica_id=replica_id, replica_epoch=3)}
    body = (
        entity_type(
            max_wait=datetime.timedelta(0),
            min_bytes=0,
            isolation_level=0,
            topics=(),
            forgotten_topics_data=(),
            **state,
        )
        if version >= 7
        else entity_type(max_wait=datetime.timedelta(0), min_bytes=0, isolation_level=0, topics=(), **state)
    )
    assert kind_of_fetch(body) == kind


def test_first_request_of_an_api_may_come_while_samples_are_read() -> None:
    """Samples are read in a thread, beside the loop that handles requests."""
    metrics = RequestMetrics()
    metrics.of("Fetch").versions[17] = 1
    samples = metrics.samples(0)
    next(samples)
    metrics.of("Metadata")
    assert {dict(each.name.tags)["request"] for each in samples} == {"Fetch"}


def test_apis_have_kafkas_names() -> None:
    """Tags that differ from Kafka's are found by no board."""
    names = [ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.API_VERSIONS, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS]
    assert [api_name(key) for key in names] == [
        "Produce",
        "ListOffsets",
        "ApiVersions",
        "GetTelemetrySubscriptions",
    ]
