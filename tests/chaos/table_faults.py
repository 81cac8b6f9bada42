"""A topic that is a table: kills at each step of its commits, of the controller's process and of the driver.

Steps are seen by what they write: a manifest, the list of manifests, the metadata, and the catalogue's row.
No snapshot that is read may have a record twice, and in the end the table has each record of the topic once.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.chaos.scene import POLL_S, Scene, Strike, Struck, TierError
from tests.chaos.store_faults import LATEST, end_offset

TOPIC_CONFIG: Final = {"sparklog.table.enable": "true"}
TIMEOUT_S: Final = 120.0
STEPS: Final = {"manifest": "*-m*.avro", "list of manifests": "snap-*.avro", "metadata": "*.metadata.json"}
"""By their files below the table's metadata."""
BEHIND: Final = "catalogue"
ROUNDS: Final = 2
LOOK_S: Final = 0.001


def table_config(directory: Path) -> Mapping[str, str]:
    """Return the configuration of a cluster whose catalogue lies in `directory`."""
    return {
        "sparklog.table.catalog.uri": f"sqlite:///{directory}/catalogue.db",
        "sparklog.table.catalog.warehouse": directory.as_uri(),
        "sparklog.table.commit.interval.ms": "500",
        "sparklog.table.snapshot.retention.ms": "60000",
    }


class ChaoticTable:
    """The table of a topic, as a reader finds it."""

    def __init__(self, directory: Path, topic: str) -> None:
        self._directory = directory
        self._topic = topic
        self._name = f"topics.{topic.replace('.', '_')}"
        properties = {"uri": f"sqlite:///{directory}/catalogue.db", "warehouse": directory.as_uri()}
        self._catalog = load_catalog("sparklog", **properties)

    def load(self) -> Table | None:
        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def newest(self) -> int | None:
        table = self.load()
        snapshot = None if table is None else table.current_snapshot()
        return None if snapshot is None else snapshot.snapshot_id

    def wait_for(self, step: str) -> None:
        """Return when a commit has come to a step.

        Raises:
            TierError: none has in time.
        """
        deadline_s = time.monotonic() + TIMEOUT_S
        happened = self._watch(step)
        while not happened():
            if time.monotonic() > deadline_s:
                raise TierError(f"no commit has come to its {step} in {TIMEOUT_S:g} s")
            time.sleep(LOOK_S)

    def _watch(self, step: str) -> Callable[[], bool]:
        if step == BEHIND:
            newest = self.newest()
            return lambda: self.newest() != newest
        pattern = f"bucket/tables/{self._topic}-*/metadata/{STEPS[step]}"
        known = set(self._directory.glob(pattern))
        return lambda: not known.issuperset(self._directory.glob(pattern))

    def offsets(self) -> dict[int, list[int]]:
        """Return the offsets of each partition, in order.

        Raises:
            TierError: a snapshot has a record twice.
        """
        found: dict[int, list[int]] = {}
        table = self.load()
        if table is None:
            return found
        rows = table.scan(selected_fields=("partition", "offset")).to_arrow()
        columns = (rows.column(name).to_pylist() for name in ("partition", "offset"))
        for partition, offset in sorted(zip(*columns, strict=True)):
            of_partition = found.setdefault(partition, [])
            if of_partition and of_partition[-1] == offset:
                raise TierError(f"the table has offset {offset} of partition {partition} twice")
            of_partition.append(offset)
        return found


def kill_in_commits(kill_controller: Strike, kill_driver: Strike) -> Strike:
    """Return the fault: the driver is killed last, and brokers with it."""
    return lambda scene: _kill_in_commits(scene, kill_controller, kill_driver)


def _kill_in_commits(scene: Scene, kill_controller: Strike, kill_driver: Strike) -> Struck:
    table = ChaoticTable(scene.application.directory, scene.view.topic)
    partitions = range(len(scene.brokers()[1]))
    steps = [*STEPS, BEHIND] * ROUNDS
    scene.chance.shuffle(steps)
    table.wait_for(BEHIND)
    for step in steps:
        table.wait_for(step)
        kill_controller(scene)
        table.offsets()
    last = scene.chance.choice(steps)
    table.wait_for(last)
    struck = kill_driver(scene)
    scene.brokers(TIMEOUT_S)
    count = _wait_until_complete(scene, table, partitions)
    description = (
        f"SIGKILL of the controller's process in {len(steps)} commits, and {struck.description} behind the "
        f"{last} of one: {count} records once each in the table"
    )
    return replace(struck, description=description)


def _wait_until_complete(scene: Scene, table: ChaoticTable, partitions: range) -> int:
    """Return how many rows the table has when it has all that the topic had when this was called.

    Raises:
        TierError: a row is there twice, or missing in the end.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    ends: dict[int, int] = {}
    while True:
        for partition in partitions:
            if partition not in ends and (end := end_offset(scene, partition, LATEST)) is not None:
                ends[partition] = end
        found = table.offsets()
        reached = {partition: found.get(partition, [-1])[-1] + 1 for partition in partitions}
        if len(ends) == len(partitions) and all(reached[each] >= end for each, end in ends.items()):
            break
        if time.monotonic() > deadline_s:
            raise TierError(f"the table has {reached} of {ends} after {TIMEOUT_S:g} s")
        time.sleep(POLL_S)
    for partition, offsets in found.items():
        if offsets != list(range(offsets[-1] + 1)):
            missing = sorted(set(range(offsets[-1])) - set(offsets))
            raise TierError(f"the table lacks offsets of partition {partition}: {missing[:5]}")
    return sum(map(len, found.values()))
