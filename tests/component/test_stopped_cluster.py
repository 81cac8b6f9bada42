"""Brokers that are told to stop all together, as processes: what they log on their way out."""

from functools import partial

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cluster import LocalCluster, wait_for

PARTITIONS = 6


def has_its_replicas(cluster: LocalCluster, broker_id: int) -> bool:
    """Whether the broker has heard of the topic; a majority of the others is enough to create it."""
    log = cluster.log_path(broker_id).read_text()
    return all(f"t-{partition}: " in log for partition in range(PARTITIONS))


def test_brokers_of_a_stopped_cluster_leave_without_a_warning() -> None:
    """They are told one by one, so followers lose leaders that have gone; warnings would be false alarms."""
    with LocalCluster(brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(10)
        for broker_id in cluster.broker_ids:
            wait_for(partial(has_its_replicas, cluster, broker_id), f"the replicas of broker {broker_id}")
        cluster.controller.shut_down_brokers()
        assert [cluster.wait_for_exit(broker_id) for broker_id in cluster.broker_ids] == [0, 0, 0]
        logs = [cluster.log_path(broker_id).read_text() for broker_id in cluster.broker_ids]
    assert all(f"{PARTITIONS} logs closed" in log for log in logs)
    lines = [line for log in logs for line in log.splitlines()]
    alarms = [line for line in lines if " WARNING " in line or " ERROR " in line]
    # A machine that had no processor for a broker is told of, rightly.
    assert [line for line in alarms if " sparklog.node.loop.loop_lag: " not in line] == []
