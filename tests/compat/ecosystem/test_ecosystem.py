"""Programs of Kafka's ecosystem, killed in the middle of what they do; docs/clients.md names them.

`python -m tests.compat.ecosystem` runs them with more records.
"""

import random
from pathlib import Path
from typing import Final

import pytest

from benchmarks.java_libraries import FETCH_TIMEOUT_S
from tests.chaos.counting import COUNTERS, count_words
from tests.cluster import LocalCluster
from tests.compat.ecosystem.copied_lines import copy_lines
from tests.compat.ecosystem.mirrored_topics import MirroredCluster, mirror_both_ways

TEST_TIMEOUT_S: Final = 240.0

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(TEST_TIMEOUT_S + FETCH_TIMEOUT_S),
    pytest.mark.usefixtures("kafka_servers"),
]


def test_mirror_maker_that_is_killed_copies_both_ways_each_record_once(
    broken_cluster: LocalCluster, kafka_servers: str, tmp_path: Path
) -> None:
    """Clusters of Kafka's are moved over, and kept beside one of ours, by MirrorMaker 2."""
    ours = MirroredCluster("ours", broken_cluster.bootstrap_servers, replicas=3)
    kafka = MirroredCluster("apache", kafka_servers, replicas=1)
    assert mirror_both_ways(ours, kafka, tmp_path, records=2_000) == {
        f"{alias}.{topic}": count
        for alias in ("ours", "apache")
        for topic, count in {"orders": 2_000, "states": 500, "payments": 250}.items()
    }


def test_connect_whose_worker_and_broker_are_killed_copies_each_line_once(
    broken_cluster: LocalCluster, tmp_path: Path
) -> None:
    """A source that Connect promises exactly once needs the cluster's transactions, fencing and group."""
    copy_lines(broken_cluster, tmp_path, lines=1_000)


def test_streams_whose_broker_and_instance_are_killed_counts_each_word_once(
    broken_cluster: LocalCluster,
) -> None:
    """Exactly once of Streams has offsets, changelogs, standbys and results in one transaction."""
    chance = random.Random(1)

    def kill_broker(_: object) -> None:
        broker_id = chance.choice(broken_cluster.broker_ids)
        broken_cluster.kill(broker_id)
        broken_cluster.restart(broker_id)

    count_words(
        broken_cluster.bootstrap_servers,
        chance,
        [kill_broker, lambda instances: instances.kill(chance.randrange(COUNTERS))],
        lines=1_000,
    )
