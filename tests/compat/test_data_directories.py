"""Data directories that an earlier version left are opened by today's, and nothing in them is lost.

`tests/compat/data_directories/make.py` says what is in them and how they were made, with which version.
"""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparklog.node.clocks import wall_clock_ms
from sparklog.node.storage.directory.running_marker import RunningMarker, boot_id, read_marker, write_marker
from sparklog.node.storage.producers.producer_snapshots import decode_snapshot, encode_snapshot
from sparklog.protocol.errors import ErrorCode
from tests.cluster import LocalCluster, wait_for
from tests.compat.data_directories.make import CONFIG, PARTITIONS, append, in_sync, served

ARCHIVES = Path(__file__).parent / "data_directories"
SET_ASIDE = re.compile(r".*(\.cut-\d+|\.damaged|-stray|-delete)$")


class Kept(NamedTuple):
    """A cluster over directories of an earlier version."""

    cluster: LocalCluster
    manifest: dict[str, Any]
    logs: dict[Path, bytes]
    """What was in each partition's log files before today's version saw them.

    Not the metadata log's: what the new driver did not find at a majority goes.
    """
    checks_everything: bool


@pytest.fixture(params=["stopped", "killed", "killed with the machine"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """Start today's version where an earlier one was stopped or killed."""
    with tarfile.open(ARCHIVES / f"{request.param.partition(' ')[0]}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    _appended_just_now(tmp_path)
    if request.param == "killed":
        # The machine that it was killed on is this one, and went on.
        for directory in tmp_path.glob("broker-*"):
            marker, boot = read_marker(directory), boot_id()
            assert marker is not None
            assert boot is not None
            write_marker(directory, RunningMarker(boot, marker.broker_epoch))
    logs = {
        path: path.read_bytes()
        for topic in PARTITIONS
        for path in tmp_path.glob(f"broker-*/{topic}-[0-9]/*.log")
    }
    assert len(logs) >= 3 * sum(PARTITIONS.values())
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    with LocalCluster(brokers=3, config=CONFIG, directory=tmp_path) as cluster:
        yield Kept(cluster, manifest, logs, request.param != "stopped")


def _appended_just_now(root: Path) -> None:
    """Let what producers have written be of now: a day after that they are forgotten."""
    now_ms = wall_clock_ms()
    for path in root.glob("broker-*/*/*.snapshot"):
        states = decode_snapshot(path.read_bytes(), now_ms)
        for state in states.producers.values():
            state.last_append_ms = now_ms
        path.write_bytes(encode_snapshot(states.producers))


def test_cluster_over_directories_of_an_earlier_version_serves_what_it_served(kept: Kept) -> None:
    """Whoever upgrades must find every byte, every id and every producer where they were."""
    cluster, manifest = kept.cluster, kept.manifest
    assert cluster.cluster_id == manifest["cluster_id"]
    topics = cluster.image.topics.by_name
    assert {topic: str(topics[topic].topic_id) for topic in topics} == manifest["topic_ids"]
    wait_for(lambda: in_sync(cluster), "every replica in sync")
    for topic, count in PARTITIONS.items():
        for partition in range(count):
            before = manifest["served"][f"{topic}-{partition}"]
            # A checkpointed high watermark may be older: followers have to fetch before it is where it was.
            wait_for(
                lambda topic=topic, partition=partition, before=before: (
                    served(cluster, topic, partition)["high_watermark"] >= before["high_watermark"]
                ),
                f"the high watermark of {topic}-{partition}",
            )
            assert served(cluster, topic, partition) == before
    sequence = manifest["next_sequence"]
    assert append(cluster, sequence - 1) == (ErrorCode.none, sequence - 1), "a retry is not appended again"
    assert append(cluster, sequence + 5)[0] is ErrorCode.out_of_order_sequence_number
    assert append(cluster, sequence) == (ErrorCode.none, sequence)
    assert served(cluster, "rolled", 0)["high_watermark"] == sequence + 1

    assert [path for path in cluster.directory.rglob("*") if SET_ASIDE.match(path.name)] == []
    changed = [path for path, before in kept.logs.items() if path.read_bytes()[: len(before)] != before]
    assert changed == [], "nothing was cut"
    for broker_id in cluster.broker_ids:
        told = cluster.log_path(broker_id).read_text()
        (checked_bytes,) = re.findall(r"logs with \d+ bytes loaded, (\d+) bytes of them checked", told)
        assert (int(checked_bytes) > 0) is kept.checks_everything
        assert not re.search(r"Rebuilding|Removing .*(snapshot|checkpoint)|is removed|lacks", told)
