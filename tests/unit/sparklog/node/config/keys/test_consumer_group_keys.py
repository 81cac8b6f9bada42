"""Keys of consumer groups that contradict each other are refused before a broker starts."""

import pytest

from sparklog.node.config import BrokerConfig, ConfigError


@pytest.mark.parametrize(
    ("configuration", "complaint"),
    [
        ({"group.consumer.session.timeout.ms": "30000"}, r"group.consumer.min.session.timeout.ms \(45000\)"),
        ({"group.consumer.heartbeat.interval.ms": "20000"}, r"max.heartbeat.interval.ms \(15000\)"),
        ({"group.consumer.max.session.timeout.ms": "1000"}, "group.consumer.min.session.timeout.ms is 45000"),
        (
            {
                "group.consumer.max.heartbeat.interval.ms": "60000",
                "group.consumer.heartbeat.interval.ms": "45000",
            },
            r"must be less than group.consumer.session.timeout.ms \(45000\)",
        ),
        ({"group.consumer.assignors": ""}, "at least one"),
        ({"group.consumer.assignors": "uniform,org.example.Mine"}, "a list of uniform, range"),
        ({"group.consumer.migration.policy": "sometimes"}, "one of bidirectional, upgrade"),
    ],
)
def test_consumer_group_keys_that_contradict_are_refused(
    configuration: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BrokerConfig.from_mapping(configuration)


def test_consumer_group_keys_within_bounds_that_were_widened_are_taken() -> None:
    """Tests and impatient users have shorter sessions."""
    config = BrokerConfig.from_mapping(
        {
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.migration.policy": "Upgrade",
            "group.consumer.assignors": "range",
        }
    )
    assert config.consumer_group_bounds["session.timeout.ms"] == (6000, 1000, 60000)
    assert config.group_consumer_assignors == ("range",)
