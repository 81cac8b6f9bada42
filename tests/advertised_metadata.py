"""What each broker tells clients of a topic: one may have heard of a change that another has not.

Whoever changes something is answered once it is committed, as by Kafka; brokers hear of it one after the
other, and a client asks the one that it likes. librdkafka waits for a topic that this broker does not know,
and gives up at once on a partition of it (_UNKNOWN_PARTITION). So tests that go on with other clients than
the one they have made a change with, wait until every broker tells of it.
"""

from collections.abc import Callable

from kio.schema.metadata.v11.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v11.response import MetadataResponse

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId
from tests.cluster import wait_for

TIMEOUT_S = 45.0


def wait_until_all_tell_of(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Return when every broker tells who leads each of so many partitions; with none, of no such topic.

    Raises:
        ClusterError: it takes too long.
    """

    def all_tell() -> bool:
        advertised = advertised_leaders(bootstrap_servers, topic)
        return bool(advertised) and all(
            leaders.keys() == set(range(partitions)) and None not in leaders.values()
            for leaders in advertised.values()
        )

    wait_for(all_tell, f"every broker tells of {partitions} partitions of {topic}", TIMEOUT_S)


def shown_in_time(show: Callable[[], str], what: str) -> str:
    """Return what a tool shows as soon as `what` is in it: it asks the broker that it likes.

    Raises:
        ClusterError: it takes too long.
    """

    def shown() -> str | None:
        text = show()
        return text if what in text else None

    return wait_for(shown, f"{what} shown", TIMEOUT_S)


def advertised_leaders(bootstrap_servers: str, topic: str) -> dict[str, dict[int, BrokerId | None]]:
    """Return who leads the topic's partitions, as is told at each address; None while it is nobody.

    Asked is who listens at `bootstrap_servers`, and all brokers that are named there. Who cannot be reached
    tells nobody anything.
    """
    advertised: dict[str, dict[int, BrokerId | None]] = {}
    unasked = set(bootstrap_servers.split(","))
    asked = set[str]()
    while unasked:
        address = unasked.pop()
        asked.add(address)
        if (answer := _ask(address, topic)) is not None:
            unasked |= {f"{broker.host}:{broker.port}" for broker in answer.brokers} - asked
            advertised[address] = {
                partition.partition_index: None if partition.leader_id < 0 else partition.leader_id
                for partition in answer.topics[0].partitions
            }
    return advertised


def _ask(address: str, topic: str) -> MetadataResponse | None:
    """Return what is told of a topic at an address; None if nobody is there."""
    host, _, port = address.rpartition(":")
    asked_for = MetadataRequestTopic(topic_id=None, name=topic)
    request = MetadataRequest(
        topics=(asked_for,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    try:
        with BlockingChannel(host, int(port), "told", TIMEOUT_S) as channel:
            answer: MetadataResponse = channel.request(request)
    except KafkaError as error:
        if error.error_code is not ErrorCode.network_exception:
            raise
        return None
    return answer
