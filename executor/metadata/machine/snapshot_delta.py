"""The difference between two images that do not follow each other by a batch: one came from a snapshot.

Subscribers act on this delta as on those of `replay_records`: it names all differences, and no equal
keys. A topic that was deleted and created again under its name has another id, so it is
both in `deleted_topics` and in `created_topics`.
"""

from collections.abc import Mapping, Set
from typing import TypeVar
from uuid import UUID

from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def difference(older: MetadataImage, newer: MetadataImage) -> MetadataDelta:
    old_topics, new_topics = older.topics.by_id, newer.topics.by_id
    changed_topics: dict[UUID, Set[int]] = {}
    for topic_id, topic in new_topics.items():
        old_topic = old_topics.get(topic_id)
        if old_topic is None:
            changed_topics[topic_id] = frozenset(topic.partitions)
        elif old_topic is not topic and (partitions := _changed(old_topic.partitions, topic.partitions)):
            changed_topics[topic_id] = partitions
    return MetadataDelta(
        changed_topics=changed_topics,
        created_topics=new_topics.keys() - old_topics.keys(),
        deleted_topics={
            topic_id: old_topics[topic_id].name for topic_id in old_topics.keys() - new_topics.keys()
        },
        changed_configs=_changed(older.configs, newer.configs),
        changed_brokers=_changed(older.brokers, newer.brokers),
        changed_client_quotas=_changed(older.client_quotas, newer.client_quotas),
    )


def _changed(older: Mapping[_Key, _Value], newer: Mapping[_Key, _Value]) -> frozenset[_Key]:
    """Return the keys with different values in the two, or with a value in only one."""
    return frozenset(key for key in older.keys() | newer.keys() if older.get(key) != newer.get(key))
