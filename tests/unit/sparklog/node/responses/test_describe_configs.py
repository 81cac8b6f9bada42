"""What clients are told about configuration."""

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource

from sparklog.node.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig
from sparklog.node.config.dynamic import DYNAMIC_KEYS
from sparklog.node.metadata.image import MetadataImage, ResourceType, TopicImage
from sparklog.node.responses.describe_configs import describe_configs_response
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from tests import builders

TOPIC, STATIC, DEFAULT = 1, 4, 5
FLIGHTS: Final = TopicImage("flights", UUID(int=1), {})
IMAGE: Final = builders.image(
    [builders.broker(7, rack="rack-1")],
    [FLIGHTS],
    configs={(ResourceType.TOPIC, "flights"): {"retention.ms": "60000"}},
)
CONTROLLER_CONFIG: Final = BrokerConfig.from_mapping(
    {"log.retention.hours": "1", "log.segment.bytes": "2000000"}
)


def described(
    resource_type: int,
    name: str,
    *keys: str,
    config: BrokerConfig = CONTROLLER_CONFIG,
    synonyms: bool = True,
    documentation: bool = False,
    image: MetadataImage = IMAGE,
) -> Any:
    request = DescribeConfigsRequest(
        resources=(
            DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=keys or None
            ),
        ),
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = in_one_go(describe_configs_response(image, config, request)).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def entry(result: Any) -> tuple[Any, ...]:
    assert result.error_code is ErrorCode.none, result
    (item,) = result.configs
    return item.value, item.config_source, [(one.name, one.value, one.source) for one in item.synonyms]


def test_describe_configs_of_a_topic_value_shows_what_it_overrides() -> None:
    """`kafka-configs.sh --describe --all` prints the chain, deciding value first."""
    assert entry(described(ResourceType.TOPIC, "flights", "retention.ms")) == (
        "60000",
        TOPIC,
        [
            ("retention.ms", "60000", TOPIC),
            ("log.retention.hours", "1", STATIC),
            ("log.retention.hours", "168", DEFAULT),
        ],
    )


def test_describe_configs_of_a_topic_without_own_value_shows_the_brokers() -> None:
    """Where a value comes from decides where it is to be changed."""
    assert entry(described(ResourceType.TOPIC, "flights", "segment.bytes")) == (
        "2000000",
        STATIC,
        [("log.segment.bytes", "2000000", STATIC), ("log.segment.bytes", "1073741824", DEFAULT)],
    )
    assert entry(described(ResourceType.TOPIC, "flights", "cleanup.policy")) == (
        "delete",
        DEFAULT,
        [("log.cleanup.policy", "delete", DEFAULT)],
    )
    assert entry(described(ResourceType.TOPIC, "flights", "retention.bytes"))[0] == "-1"


def test_describe_configs_without_keys_lists_all_public_ones() -> None:
    """Synonyms and documentation only if asked."""
    result = described(ResourceType.TOPIC, "flights", synonyms=False)
    assert {item.name for item in result.configs} == set(TOPIC_KEYS) - {"internal.segment.bytes"}
    assert all(item.synonyms == () and item.documentation is None for item in result.configs)
    assert not any(item.read_only for item in result.configs)
    (item,) = described(ResourceType.TOPIC, "flights", "preallocate", documentation=True).configs
    assert item.documentation == TOPIC_KEYS["preallocate"].documentation
    assert item.config_type == 1


def test_describe_configs_of_a_broker_by_the_controller_shows_its_identity() -> None:
    """The driver answers for every registered broker."""
    assert entry(described(ResourceType.BROKER, "7", "broker.rack")) == (
        "rack-1",
        STATIC,
        [("broker.rack", "rack-1", STATIC)],
    )
    assert entry(described(ResourceType.BROKER, "7", "node.id"))[0] == "7"
    result = described(ResourceType.BROKER, "7")
    assert {item.name for item in result.configs} == set(BROKER_KEYS)
    assert {item.name for item in result.configs if not item.read_only} == DYNAMIC_KEYS


def test_describe_configs_of_a_broker_by_another_is_refused() -> None:
    """As in Kafka, where each broker knows its own configuration only."""
    config = CONTROLLER_CONFIG.with_identity(3, "rack-0")
    assert described(ResourceType.BROKER, "7", config=config).error_code is ErrorCode.invalid_request
    assert described(ResourceType.BROKER, "3", config=config).error_code is ErrorCode.none


def test_describe_configs_of_all_brokers_defaults_is_empty() -> None:
    """There are no dynamic broker configurations."""
    result = described(ResourceType.BROKER, "")
    assert (result.error_code, result.configs) == (ErrorCode.none, ())


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (ResourceType.TOPIC, "nowhere", ErrorCode.unknown_topic_or_partition),
        (ResourceType.TOPIC, "a/b", ErrorCode.invalid_topic_exception),
        (ResourceType.BROKER, "eight", ErrorCode.invalid_request),
        (ResourceType.BROKER, "8", ErrorCode.invalid_request),
        (ResourceType.BROKER_LOGGER, "7", ErrorCode.invalid_request),
        (99, "x", ErrorCode.invalid_request),
    ],
)
def test_describe_configs_of_what_is_not_there_is_an_error_of_its_own(
    resource_type: int, name: str, error: ErrorCode
) -> None:
    """One bad resource must not spoil the others' answers."""
    result = described(resource_type, name)
    assert (result.error_code, result.configs) == (error, ())
    assert result.error_message


RATE: Final = "leader.replication.throttled.rate"
TOLD: Final = replace(
    IMAGE,
    configs={
        **IMAGE.configs,
        (ResourceType.BROKER, ""): {"log.retention.ms": "300", RATE: "30"},
        (ResourceType.BROKER, "7"): {RATE: "7"},
    },
)


def test_describe_configs_of_a_broker_shows_what_it_was_told_while_it_runs() -> None:
    """One broker's value before that of all, before the properties, before the default."""
    result = described(ResourceType.BROKER, "7", RATE, image=TOLD)
    assert entry(result) == ("7", 2, [(RATE, "7", 2), (RATE, "30", 3), (RATE, str(2**63 - 1), DEFAULT)])
    assert not result.configs[0].read_only
    assert described(ResourceType.BROKER, "7", "log.dirs", image=TOLD).configs[0].read_only
    config = CONTROLLER_CONFIG.with_identity(7, "rack-1")
    assert described(ResourceType.BROKER, "7", RATE, image=TOLD, config=config) == result


def test_describe_configs_of_all_brokers_shows_only_what_they_were_told() -> None:
    """`kafka-configs.sh --entity-default` lists dynamic values and nothing else."""
    result = described(ResourceType.BROKER, "", image=TOLD)
    assert {(item.name, item.value, item.config_source) for item in result.configs} == {
        ("log.retention.ms", "300", 3),
        (RATE, "30", 3),
    }
    assert described(ResourceType.BROKER, "").configs == ()


def test_key_that_is_kept_without_an_effect_is_described_once_it_is_set() -> None:
    """A tool that changes it looks for it afterwards, and takes it away only where it is described."""
    kept = "sasl.kerberos.min.time.before.relogin"
    image = replace(IMAGE, configs={(ResourceType.BROKER, "7"): {kept: "58000"}})
    result = described(ResourceType.BROKER, "7", kept, image=image)
    assert entry(result) == ("58000", 2, [(kept, "58000", 2), (kept, "60000", DEFAULT)])
    assert not result.configs[0].read_only
    assert described(ResourceType.BROKER, "7", kept).configs == ()
    for_all = replace(IMAGE, configs={(ResourceType.BROKER, ""): {"num.io.threads": "9"}})
    assert entry(described(ResourceType.BROKER, "", image=for_all)) == ("9", 3, [("num.io.threads", "9", 3)])


def test_describe_configs_of_a_topic_shows_what_all_brokers_were_told() -> None:
    """It is what the topic's logs obey."""
    image = replace(TOLD, configs={(ResourceType.BROKER, ""): {"log.retention.ms": "300"}})
    value, source, synonyms = entry(described(ResourceType.TOPIC, "flights", "retention.ms", image=image))
    assert (value, source) == ("300", 3)
    assert [name for name, _, _ in synonyms] == [
        "log.retention.ms",
        "log.retention.hours",
        "log.retention.hours",
    ]


def test_group_is_described_with_its_own_values_and_the_brokers_behind_them() -> None:
    """Which of the two holds is told by the source."""
    image = replace(IMAGE, configs={(ResourceType.GROUP, "g"): {"consumer.session.timeout.ms": "50000"}})
    entries = {entry.name: entry for entry in described(ResourceType.GROUP, "g", image=image).configs}
    assert {
        name: (entry.value, entry.config_source)
        for name, entry in entries.items()
        if name.startswith("consumer.")
    } == {
        "consumer.session.timeout.ms": ("50000", 8),
        "consumer.heartbeat.interval.ms": ("5000", DEFAULT),
        "consumer.assignment.interval.ms": ("1000", DEFAULT),
    }
    assert [(each.name, each.value) for each in entries["consumer.session.timeout.ms"].synonyms] == [
        ("consumer.session.timeout.ms", "50000"),
        ("group.consumer.session.timeout.ms", "45000"),
    ]
    kept = entries["share.isolation.level"]
    assert (kept.value, kept.config_source) == ("read_uncommitted", DEFAULT)
    assert described(ResourceType.GROUP, "").error_code is ErrorCode.invalid_request


def test_client_metrics_are_described_with_what_is_said_and_what_is_not() -> None:
    """kafka-client-metrics.sh --describe; a name that nobody has used has the defaults, as in Kafka."""
    image = replace(IMAGE, configs={(ResourceType.CLIENT_METRICS, "m"): {"interval.ms": "1000"}})
    for name, value, source in (("m", "1000", 7), ("other", "300000", DEFAULT)):
        shown = {each.name: each for each in described(16, name, image=image).configs}
        assert set(shown) == {"interval.ms", "match", "metrics"}
        interval = shown["interval.ms"]
        assert (interval.value, interval.config_source, interval.read_only) == (value, source, False)
    assert described(16, "", image=image).error_code is ErrorCode.invalid_request
