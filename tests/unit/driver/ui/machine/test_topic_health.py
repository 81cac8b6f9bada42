"""How partitions are, and that nothing is looked at twice."""

from collections.abc import Mapping
from dataclasses import replace

from sparklog.driver.ui.machine.status import PartitionsStatus, Trouble
from sparklog.driver.ui.machine.topic_health import BrokerLoad, TopicHealth, trouble_of
from sparklog.node.metadata.image import ResourceType
from tests.unit.driver.ui.cluster_images import image, partition, with_partitions


def health(minimum: int = 2) -> TopicHealth:
    return TopicHealth(lambda image: int(image.broker_configs(None).get("min.insync.replicas", minimum)))


def test_partition_in_several_troubles_is_said_to_be_in_the_worst() -> None:
    """Who is called at night looks at the first word."""
    assert trouble_of(partition(leader=None, isr=()), 2) is Trouble.OFFLINE
    assert trouble_of(partition(isr=(0,)), 2) is Trouble.UNDER_MIN_ISR
    assert trouble_of(partition(isr=(0, 1)), 2) is Trouble.UNDER_REPLICATED
    assert trouble_of(partition(), 2) is None


def test_topic_with_fewer_replicas_than_the_minimum_is_as_well_as_it_can_be() -> None:
    """A cluster of one broker would else be in trouble for ever, as Kafka's own metric has it not."""
    alone = partition(isr=(0,), replicas=(0,), directories=(None,))
    assert trouble_of(alone, 2) is None


def test_replica_that_is_being_added_is_not_missed_yet() -> None:
    """Moving a partition is no failure; Kafka counts it as reassigning, not as under-replicated."""
    moving = partition(replicas=(0, 1, 2, 3), directories=(None,) * 4, adding_replicas=(3,))
    assert trouble_of(moving, 2) is None


def test_troubled_partitions_come_the_worst_first_and_bounded() -> None:
    """Ten thousand partitions of a dead broker do not hide the one that nobody leads."""
    many = [partition(isr=(0, 1)) for _ in range(500)]
    looked = health()
    looked.look_at(image({"a": many, "z": [partition(isr=(0,)), partition(leader=None, isr=())]}))
    found = looked.partitions
    assert (found.count, found.offline, found.under_min_isr, found.under_replicated) == (502, 1, 1, 500)
    assert len(found.troubled) == 100
    assert [(each.topic, each.partition, each.trouble) for each in found.troubled[:3]] == [
        ("z", 1, Trouble.OFFLINE),
        ("z", 0, Trouble.UNDER_MIN_ISR),
        ("a", 0, Trouble.UNDER_REPLICATED),
    ]


def test_image_with_one_changed_topic_costs_a_look_at_one_topic() -> None:
    """A cluster of a thousand topics is looked at every second."""
    first = image({f"topic-{number}": [partition()] for number in range(1_000)})
    looked = health()
    assert looked.look_at(first) == 1_000
    assert looked.look_at(first) == 0
    assert looked.look_at(with_partitions(first, "topic-7", p0=partition(isr=(0, 1)))) == 1
    assert [each.topic for each in looked.partitions.troubled] == ["topic-7"]


def test_topic_whose_minimum_changes_is_looked_at_again() -> None:
    """The same partition is in trouble under another configuration."""
    first = image({"a": [partition(isr=(0, 1))]})
    looked = health()
    looked.look_at(first)
    configs = {(ResourceType.TOPIC, "a"): {"min.insync.replicas": "3"}}
    looked.look_at(replace(first, configs=configs))
    assert looked.partitions.troubled[0].trouble is Trouble.UNDER_MIN_ISR


def test_deleted_topics_leave_nothing_behind() -> None:
    """What is kept is as large as the newest image."""
    looked = health()
    looked.look_at(image({"a": [partition()], "b": [partition(leader=None)]}))
    looked.look_at(image({}))
    assert looked.partitions == PartitionsStatus(
        count=0, offline=0, under_min_isr=0, under_replicated=0, troubled=()
    )
    assert (looked.names, looked.loads) == ((), {})


def test_brokers_loads_count_what_they_lead_hold_and_are_in_sync_of() -> None:
    """Whether leaders are spread is seen from one line a broker."""
    looked = health()
    looked.look_at(image({"a": [partition(0), partition(1, isr=(1, 2))], "b": [partition(1)]}))
    loads: Mapping[int, BrokerLoad] = looked.loads
    assert loads == {0: BrokerLoad(1, 3, 2), 1: BrokerLoad(2, 3, 3), 2: BrokerLoad(0, 3, 3)}


def test_topics_come_by_name_a_page_at_a_time() -> None:
    """Thousands of topics are no page."""
    looked = health()
    looked.look_at(image({f"topic-{number:03}": [partition()] for number in reversed(range(250))}))
    assert [each.name for each in looked.summaries(100, 2)] == ["topic-100", "topic-101"]
    assert looked.summaries(250, 100) == ()
