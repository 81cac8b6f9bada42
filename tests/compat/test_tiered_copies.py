"""Brokers copy what their topics have to the object store, and keep only the end of it on their disks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import LocalCluster
from tests.compat.librdkafka import create_topic, produce
from tests.compat.tiering import LOCAL_FEW, tiered_config, wait_for_copy, wait_for_local_start


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[LocalCluster]:
    with LocalCluster(config=tiered_config(store)) as cluster:
        yield cluster


def test_records_are_copied_and_leave_the_disks(cluster: LocalCluster, store: Path) -> None:
    """A disk that old records never leave is full some day, tier or not."""
    create_topic(cluster.bootstrap_servers, "copied", config=LOCAL_FEW)
    records = [{"value": b"%06d" % number + b"v" * 1000} for number in range(6000)]
    produce(cluster.bootstrap_servers, "copied", records)
    manifest = wait_for_copy(cluster, store, "copied", len(records))
    assert (manifest.log_start_offset, manifest.segments[0].base_offset) == (0, 0)
    assert sum(segment.record_count for segment in manifest.segments) == len(records)
    wait_for_local_start(cluster, "copied", 3000)
