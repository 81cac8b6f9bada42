"""Who coordinates what, as the image says it; and what a list lacks for that."""

from sparklog.driver.ui.machine.coordinators import coordinator_of, coordinators, leader_of, missing
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicPartition
from tests.unit.driver.ui.cluster_images import image, partition


def test_coordinators_lead_the_internal_topic_s_partitions() -> None:
    """Nobody else is asked; and before the first group there is nobody to ask."""
    some = image({CONSUMER_OFFSETS_TOPIC: [partition(0), partition(2), partition(None), partition(2)]})
    found = coordinators(some, CONSUMER_OFFSETS_TOPIC)
    assert (found.brokers, found.leaderless) == ({0, 2}, 1)
    assert coordinators(image({}), CONSUMER_OFFSETS_TOPIC).brokers == frozenset()
    # Java: Math.abs("group".hashCode()) % 4 == 3
    assert coordinator_of(some, CONSUMER_OFFSETS_TOPIC, "group") == 2
    assert coordinator_of(image({}), CONSUMER_OFFSETS_TOPIC, "group") is None


def test_leader_of_what_is_not_there_is_nobody() -> None:
    """Groups keep offsets of topics that were deleted, and of partitions that a new topic does not have."""
    some = image({"a": [partition(1)]})
    assert leader_of(some, TopicPartition("a", 0)) == 1
    assert leader_of(some, TopicPartition("a", 1)) is None
    assert leader_of(some, TopicPartition("b", 0)) is None


def test_list_that_lacks_somebody_s_part_says_so() -> None:
    """A group that is not in the list must not be taken for one that is gone."""
    asked = coordinators(image({CONSUMER_OFFSETS_TOPIC: [partition(0)]}), CONSUMER_OFFSETS_TOPIC)
    loading = KafkaError(ErrorCode.coordinator_load_in_progress, "it loads")
    assert missing(asked, {}) is None
    assert missing(asked, {0: loading}) == (
        "Not all are here: broker 0 says COORDINATOR_LOAD_IN_PROGRESS: it loads."
    )
