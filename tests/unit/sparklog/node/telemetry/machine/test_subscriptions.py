"""Which client is asked for what (KIP-714)."""

import pytest

from sparklog.node.config.client_metrics import checked_client_metrics
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import ConfigRecord, ResourceType
from sparklog.node.telemetry.machine.client_instances import Subscription
from sparklog.node.telemetry.machine.subscriptions import UNASKED, ClientSubscriptions
from sparklog.protocol.errors import ErrorCode, KafkaError

RECORDS = "org.apache.kafka.producer.record"
JAVA = {"client_id": "orders-1", "client_software_name": "apache-kafka-java", "client_source_port": "4711"}
LIBRDKAFKA = {"client_id": "payments-1", "client_software_name": "librdkafka"}


def with_resources(image: MetadataImage = EMPTY_IMAGE, **resources: dict[str, str | None]) -> MetadataImage:
    """Return an image in which these client-metrics resources are changed."""
    records = [
        ConfigRecord(resource_type=ResourceType.CLIENT_METRICS, resource_name=name, name=key, value=value)
        for name, values in resources.items()
        for key, value in values.items()
    ]
    return replay_records(image, records, image.end_offset, 1)[0]


def test_client_pushes_what_all_resources_that_mean_it_ask_for_at_the_shortest_interval() -> None:
    """An operator who looks into one client must not take away what another has asked of all."""
    image = with_resources(
        all={"metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.", "interval.ms": "60000"},
        java={
            "metrics": "org.apache.kafka.producer.record",
            "interval.ms": "1000",
            "match": "client_id=orders.*",
        },
        other={"metrics": "*", "match": "client_id=orders-1,client_software_name=librdkafka"},
    )
    subscriptions = ClientSubscriptions()
    prefixes = ("org.apache.kafka.consumer.", "org.apache.kafka.producer.")
    assert subscriptions.of(image, LIBRDKAFKA) == Subscription(prefixes, 60_000)
    assert subscriptions.of(image, JAVA) == Subscription(
        (*prefixes, "org.apache.kafka.producer.record"), 1_000
    )
    everything = with_resources(image, other={"match": None})
    assert subscriptions.of(everything, JAVA) == Subscription(("*",), 1_000)


def test_client_that_no_resource_means_pushes_nothing_while_there_is_one() -> None:
    """A pattern fits the whole of what it is held against, as in Kafka."""
    image = with_resources(java={"metrics": "*", "match": "client_id=orders"})
    subscriptions = ClientSubscriptions()
    assert subscriptions.of(image, JAVA) == Subscription((), 300_000)
    gone = with_resources(image, java={"metrics": None, "match": None})
    assert subscriptions.of(gone, JAVA) == UNASKED


@pytest.mark.parametrize(
    ("name", "key", "value", "error_code"),
    [
        ("", "metrics", "*", ErrorCode.invalid_request),
        ("m", "interval", "1000", ErrorCode.invalid_request),
        ("m", "interval.ms", "99", ErrorCode.invalid_request),
        ("m", "interval.ms", "3600001", ErrorCode.invalid_request),
        ("m", "match", "client_id", ErrorCode.invalid_config),
        ("m", "match", "host=here", ErrorCode.invalid_config),
        ("m", "match", "client_id=(", ErrorCode.invalid_config),
    ],
)
def test_resource_that_nobody_could_obey_is_refused(
    name: str, key: str, value: str, error_code: ErrorCode
) -> None:
    """With Kafka's error, before it is written: every broker would read it."""
    with pytest.raises(KafkaError) as refused:
        checked_client_metrics(name, {key: value})
    assert refused.value.error_code is error_code
