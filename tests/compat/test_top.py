"""`sparklog-top` against a running cluster: what Kafka's own APIs tell of it."""

import os
import pty
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import Consumer, TopicPartition

from sparklog.jobs.command_config import command_client
from sparklog.jobs.top.observation import ClusterWatch
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import admin_client, create_topic, produce

TIMEOUT_S = 60.0
"""Python starts slowly on a busy machine."""


def top(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparklog.jobs.top", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_overview_has_brokers_topics_and_rates_by_kafka_s_apis(
    cluster: LocalCluster, new_topic_name: Callable[[str], str]
) -> None:
    """It needs an address and nothing else, so that it works from anywhere."""
    topic = new_topic_name("top")
    create_topic(cluster.bootstrap_servers, topic, partitions=2, replication_factor=3)
    watch = ClusterWatch(command_client(cluster.controller.bootstrap_servers, None))
    try:
        # Who has heard of the topic leads it a moment later.
        wait_for(
            lambda: any((each.name, each.records) == (topic, 0) for each in watch.look().topics),
            "both leaders telling their ends",
        )
        produce(cluster.bootstrap_servers, topic, [{"value": b"record"}] * 10)
        overview = watch.look()
        row = next(each for each in overview.topics if each.name == topic)
        assert (row.partitions, row.records) == (2, 10)
        assert row.records_in_per_s
        assert [(voter.node_id, voter.lag is None) for voter in overview.voters] == [
            (0, False),
            (1, False),
            (2, False),
        ]
        assert [(each.node_id, each.is_fenced) for each in overview.brokers] == [
            (0, False),
            (1, False),
            (2, False),
        ]
        assert all(each.log_bytes and each.usable_bytes for each in overview.brokers)
        assert (overview.cluster_id, overview.troubled) == (cluster.cluster_id, ())
    finally:
        watch.close()


def test_groups_are_shown_with_how_far_they_are_behind(
    cluster: LocalCluster, new_topic_name: Callable[[str], str]
) -> None:
    """What is committed and what there is lie with two brokers; nobody else puts them together."""
    topic = new_topic_name("top-groups")
    create_topic(cluster.bootstrap_servers, topic, partitions=1, replication_factor=3)
    produce(cluster.bootstrap_servers, topic, [{"value": b"record"}] * 10)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic})
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    # Records that are deleted before they are read are no lag.
    admin = admin_client(cluster.bootstrap_servers)
    for deleted in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        deleted.result(TIMEOUT_S)
    watch = ClusterWatch(command_client(cluster.controller.bootstrap_servers, None))
    try:
        seen = watch.look().groups
    finally:
        watch.close()
    assert seen.group_count == len(seen.groups)
    (group,) = (each for each in seen.groups if each.group_id == topic)
    assert (group.state, group.partitions, group.lag) == ("Empty", 1, 5)


@contextmanager
def relayed(bootstrap_servers: str) -> Iterator[str]:
    """Another address of whoever listens there; nobody is there any more in the end."""
    host, _, port = bootstrap_servers.split(",")[0].rpartition(":")

    class Relay(socketserver.BaseRequestHandler):
        """Passes on whatever either side says, until one is gone."""

        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as target:
                other = {self.request: target, target: self.request}
                while True:
                    for side in select.select(list(other), [], [])[0]:
                        data = side.recv(65_536)
                        if not data:
                            return
                        other[side].sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_overview_goes_on_when_the_address_it_was_given_is_gone(cluster: LocalCluster) -> None:
    """That broker's death is what somebody looks for."""
    with relayed(cluster.bootstrap_servers) as address:
        watch = ClusterWatch(command_client(address, None))
        before = watch.look()
    try:
        assert [row.address for row in watch.look().brokers] == [row.address for row in before.brokers]
    finally:
        watch.close()


def test_once_prints_the_overview_and_ends(cluster: LocalCluster) -> None:
    """For scripts, and for a look by ssh."""
    ended = top("--once", cluster.bootstrap_servers)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"Cluster {cluster.cluster_id} ")


def test_address_that_answers_nothing_is_one_line() -> None:
    """A stack trace says nothing to whoever has mistyped a port."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        ended = top(f"127.0.0.1:{unused.getsockname()[1]}")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("No cluster answers at 127.0.0.1:")
    assert ended.stderr.count("\n") == 1


def test_interrupt_ends_quietly(cluster: LocalCluster) -> None:
    """Ctrl-C is how one leaves."""
    terminal, its_end = pty.openpty()
    try:
        command = [sys.executable, "-m", "sparklog.jobs.top", cluster.bootstrap_servers]
        # Whoever started the tests in the background has it ignored, in everything below, too.
        heard = signal.signal(signal.SIGINT, signal.default_int_handler)
        running = subprocess.Popen(command, stdout=its_end, stderr=subprocess.PIPE)
        signal.signal(signal.SIGINT, heard)
        os.close(its_end)
        assert os.read(terminal, 1 << 16), "nothing was shown"
        running.send_signal(signal.SIGINT)
        # A terminal takes what is written: one that does not holds up the last words of the program, too.
        with suppress(OSError):  # the other end is closed
            while os.read(terminal, 1 << 16):
                pass
        _, complaints = running.communicate(timeout=TIMEOUT_S)
    finally:
        os.close(terminal)
    assert (running.returncode, complaints) == (0, b"")
