"""Requests to several brokers at once, each made once: for who looks again soon, and takes what there is."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sparklog.client.cluster_client import ClusterClient
from sparklog.errors import KafkaError
from sparklog.types import BrokerId

__all__ = ["Answers", "ask_brokers"]


class Answers(NamedTuple):
    """Who answered what, and who did not."""

    responses: dict[BrokerId, Any]
    failures: dict[BrokerId, KafkaError]


def ask_brokers(cluster: ClusterClient, requests: Mapping[BrokerId, Any]) -> Answers:
    """Send each broker its request, then wait for all of them; who fails is disconnected from."""
    answers = Answers({}, {})
    asked = []
    for broker_id, request in requests.items():
        try:
            cluster.channel(broker_id).send(request)
            asked.append(broker_id)
        except KafkaError as error:
            answers.failures[broker_id] = error
            cluster.disconnect(broker_id)
    for broker_id in asked:
        try:
            answers.responses[broker_id] = cluster.channel(broker_id).receive()
        except KafkaError as error:
            answers.failures[broker_id] = error
            cluster.disconnect(broker_id)
    return answers
