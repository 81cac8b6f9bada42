"""A host short of processors: brokers that hardly run keep their places, and fencing does not spread."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from tests.cluster import LocalCluster
from tests.compat.librdkafka import consume, create_topic, produce

STOPPED_S: Final = 4.0
RUNS_S: Final = 0.1
WAITS_S: Final = 1.9

NewName = Callable[[str], str]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of this test's own: connections that the starvation cut are made again some time later."""
    with LocalCluster(brokers=3) as running:
        yield running


@contextlib.contextmanager
def starved(cluster: LocalCluster, *broker_ids: int) -> Iterator[None]:
    """Let these brokers run a twentieth of the time, as the kernel does with a group that is out of quota.

    Busy processes would starve the other tests of this machine as well.
    """
    fed = threading.Event()

    def ration() -> None:
        while not fed.is_set():
            for number, lasts_s in ((signal.SIGSTOP, WAITS_S), (signal.SIGCONT, RUNS_S)):
                for broker_id in broker_ids:
                    cluster.signal(broker_id, number)
                fed.wait(lasts_s)

    thread = threading.Thread(target=ration)
    thread.start()
    try:
        yield
    finally:
        fed.set()
        thread.join()
        for broker_id in broker_ids:
            cluster.signal(broker_id, signal.SIGCONT)


@pytest.mark.long
def test_broker_stopped_for_seconds_on_a_starved_host_costs_neither_its_place_nor_the_others(
    cluster: LocalCluster, new_topic_name: NewName, caplog: pytest.LogCaptureFixture
) -> None:
    """A fenced broker has to be elected around, caught up and led back, on a host that has no time for it.

    One that was stopped for four seconds had the other two fenced, and every partition silent for twenty.
    """
    caplog.set_level("INFO", "sparklog.driver.controller.machine.fencing")
    topic = new_topic_name("starved")
    create_topic(cluster.bootstrap_servers, topic)
    produce(cluster.bootstrap_servers, topic, [{"value": b"before"}])
    stopped = cluster.leader(topic)
    assert stopped is not None
    with starved(cluster, *(broker_id for broker_id in cluster.broker_ids if broker_id != stopped)):
        cluster.signal(stopped, signal.SIGSTOP)
        time.sleep(STOPPED_S)  # the fault itself: the brokers get no processor for so long
        cluster.signal(stopped, signal.SIGCONT)
        produce(cluster.bootstrap_servers, topic, [{"value": b"during"}])
    assert [message for message in caplog.messages if "is fenced" in message] == []
    produce(cluster.bootstrap_servers, topic, [{"value": b"after"}])
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 3)
    assert [message.value() for message in messages] == [b"before", b"during", b"after"]
