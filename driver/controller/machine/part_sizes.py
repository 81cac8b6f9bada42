"""The sizes of topics that a request creates, extends or deletes, for its division into parts (`parts`).

A decision takes as long as there are partitions in it. How many these are depends on the cluster, so that the
rows of the APIs cannot say. A topic still changes as a whole.
"""

from typing import Any

from kio.schema.create_partitions.v3.request import CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreatableTopic
from kio.schema.delete_topics.v6.request import DeleteTopicState

from sparklog.driver.controller.machine.requests.create_topics import partitions_wanted
from sparklog.node.apis.parts import PARTITIONS_OF_A_TOPIC, Parts
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage, TopicImage


def by_partitions(division: Parts | None, image: MetadataImage, config: BrokerConfig) -> Parts | None:
    """Return the division of a request by the partitions that change, where it names topics as a whole."""
    if division is None:
        return None

    def size(item: Any) -> int:
        return max(division.size(item), _partitions_that_change(item, image, config) // PARTITIONS_OF_A_TOPIC)

    return division._replace(size=size)


def _partitions_that_change(item: Any, image: MetadataImage, config: BrokerConfig) -> int:
    topics = image.topics
    match item:
        case CreatableTopic():
            return partitions_wanted(config, item)
        case CreatePartitionsTopic(name=name, count=count):
            return int(count) - _count(topics.by_name.get(name))
        case DeleteTopicState(name=name, topic_id=topic_id):
            topic = None if topic_id is None else topics.by_id.get(topic_id)
            return _count(topic if name is None else topics.by_name.get(name))
    return 0


def _count(topic: TopicImage | None) -> int:
    return 0 if topic is None else len(topic.partitions)
