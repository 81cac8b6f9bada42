"""What a topic's page says that its partitions obey."""

from dataclasses import replace

from sparklog.driver.ui.machine.topic_settings import Setting, topic_settings
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import ResourceType
from tests.unit.driver.ui.cluster_images import image, partition


def test_settings_are_the_topic_s_own_then_all_brokers_then_what_they_were_started_with() -> None:
    """A value that was changed while the cluster runs is the one that records are deleted by."""
    config = BrokerConfig.from_mapping({"log.retention.ms": "1000", "log.segment.bytes": "2000000"}, racks=3)
    configs = {
        (ResourceType.TOPIC, "a"): {"retention.bytes": "5"},
        (ResourceType.BROKER, ""): {"log.retention.ms": "3000"},
    }
    settings = topic_settings(config, replace(image({"a": [partition()]}), configs=configs), "a")
    assert settings[0] == Setting("retention.bytes", "5", is_own=True)
    values = {each.name: each.value for each in settings}
    assert (values["retention.ms"], values["segment.bytes"]) == ("3000", "2000000")
    assert not any(each.is_own or each.name.startswith("internal.") for each in settings[1:])
