"""The application's own cluster is stopped under its queries: they say so, instead of waiting for it."""

import pytest

from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import FetchConfig, ProducerConfig
from sparklog.user.client.errors import ApiTimeoutError, ClusterStoppedError, DeliveryError
from sparklog.user.client.fetching import PartitionFetcher
from sparklog.user.client.producer import Producer
from sparklog.user.client.topics import Leader
from tests.unit.sparklog.user.client.brokers import FIRST, Brokers, with_brokers
from tests.unit.sparklog.user.client.test_leader_changes import BATCH, NEVER_MS, writing


def stop(brokers: Brokers) -> None:
    """End all brokers, the one that clients were told of last, as the controller is."""
    for broker_id in range(3):
        brokers.die(broker_id)


def own_client(brokers: Brokers) -> ClusterClient:
    """Return a client that never ends a pause, so whatever it says it says at once."""
    return brokers.client(retry_backoff_ms=NEVER_MS, of_this_application=True)


def test_client_of_a_cluster_that_was_stopped_says_so_at_once() -> None:
    """It is not coming back: 60 seconds of asking end in words about a timeout."""

    def use(brokers: Brokers) -> None:
        stop(brokers)
        with own_client(brokers) as client, pytest.raises(ClusterStoppedError, match="was stopped"):
            client.topic("t")

    with_brokers(use)


def test_client_of_another_cluster_goes_on_trying() -> None:
    """Somebody starts that one again; whether it is gone for good is not ours to say."""

    def use(brokers: Brokers) -> None:
        stop(brokers)
        with brokers.client() as client, pytest.raises(ApiTimeoutError):
            client.topic("t", create=True, timeout_ms=1)

    with_brokers(use)


def test_client_whose_connected_brokers_live_does_without_the_controller() -> None:
    """A controller that fails takes no leader along; its successor is found through the brokers."""

    def use(brokers: Brokers) -> None:
        with own_client(brokers) as client:
            client.leader(FIRST)
            client.channel(1)
            brokers.die(2)
            brokers.leaders[FIRST] = Leader(1, 2)
            client.forget_leader(FIRST)
            assert client.leader(FIRST) == Leader(1, 2)

    with_brokers(use)


def test_producer_whose_cluster_is_stopped_fails_with_the_reason() -> None:
    """A write that runs at the stop would hold its Spark task for two minutes."""

    def use(brokers: Brokers) -> None:
        with own_client(brokers) as client:
            producer = writing(brokers, client)
            stop(brokers)
            producer.send(FIRST, BATCH, 1)
            with pytest.raises(DeliveryError, match="was stopped"):
                producer.flush()

    with_brokers(use)


def test_producer_that_begins_while_its_cluster_is_stopped_fails_with_the_reason() -> None:
    """The brokers' addresses are known by then, and would be tried again and again."""

    def use(brokers: Brokers) -> None:
        with own_client(brokers) as client:
            client.topic("t")
            stop(brokers)
            with pytest.raises(ClusterStoppedError):
                Producer(client, ProducerConfig()).start()

    with_brokers(use)


def test_reader_whose_cluster_is_stopped_fails_with_the_reason() -> None:
    """The poll timeout, two minutes, is for leaders that change."""

    def use(brokers: Brokers) -> None:
        with own_client(brokers) as client:
            client.leader(FIRST)
            stop(brokers)
            with pytest.raises(ClusterStoppedError):
                next(iter(PartitionFetcher(client, FetchConfig(), FIRST, 0, 1)))

    with_brokers(use)
