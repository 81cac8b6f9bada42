"""The whole application ended and all its directories removed: it begins again from its object store alone.

After a SIGKILL everything below the ends that the manifests name must be there once, in order, and the
controller must name just these ends; the ledger forgives what was acknowledged beyond them, and nothing else.
A reader that was further must get an error. After an orderly stop nothing may be missing.

A consumer of its own commits all the while: after a stop the group must have its last offset, after a kill
one that is hardly older.
"""

import re
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from sparklog.node.remote_log.machine.manifest_encoding import decode_manifest
from tests.chaos.application import BROKERS
from tests.chaos.scene import POLL_S, Scene, Struck, TierError
from tests.chaos.store_faults import MAX_LAG_MS

DRAIN_S: Final = 1.0
"""How long what clients were sent before the end takes to be noted."""
TIMEOUT_S: Final = 120.0
COMMIT_INTERVAL_S: Final = 0.1
OLDEST_S: Final = 3 * MAX_LAG_MS / 1_000
"""How old, when all ended, records and commits may have been that were not copied yet."""
BEFORE_S: Final = 3 * MAX_LAG_MS / 1_000
"""How long the cluster runs first, so that there is something in the store, and something that is not."""
GOES_ON: Final = re.compile(r"(\d+) at offset (\d+) in leader epoch")


class Committer:
    """A group that commits ever greater offsets, in a thread of its own."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str) -> None:
        self.committed_s: list[float] = []
        """When the offset that is the index was acknowledged, on the monotonic clock."""
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "log_level": 0,
                "reconnect.backoff.max.ms": 1_000,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self._consumer.close()

    def stop(self) -> None:
        """Commit no more; to be called while there is a coordinator, for which a commit waits."""
        self._stopping.set()
        self._thread.join()

    def found(self) -> int:
        """Return the group's offset, -1 for none.

        Raises:
            TierError: no coordinator answers.
        """
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                (answer,) = self._consumer.committed([TopicPartition(self._topic, 0)], timeout=5)
            except KafkaException as error:
                if time.monotonic() > deadline_s:
                    raise TierError(f"the group's offset cannot be read: {error}") from error
            else:
                return max(answer.offset, -1)

    def _run(self) -> None:
        while not self._stopping.wait(COMMIT_INTERVAL_S):
            try:
                self._consumer.commit(
                    offsets=[TopicPartition(self._topic, 0, len(self.committed_s))], asynchronous=False
                )
            except KafkaException:  # the cluster is going, or its coordinator is not there yet
                continue
            self.committed_s.append(time.monotonic())


def kill_everything(scene: Scene) -> Struck:
    """Kill all processes, remove all directories, and compare what comes back with the manifests.

    Raises:
        TierError: the controller, a reader or a group was told something else.
    """
    application = scene.application
    with _commits(scene) as committer:
        time.sleep(BEFORE_S + scene.chance.uniform(0, MAX_LAG_MS / 1_000))
        committer.stop()
        application.kill()
        killed_s = time.monotonic()
        time.sleep(DRAIN_S)
        ends = _ends(application.directory / "bucket", scene)
        read = {partition: scene.ledger.next_offset(partition) for partition in ends}
        lost_s = [
            killed_s - scene.probe.acknowledged_s[partition][index]
            for partition, end in ends.items()
            for index in scene.ledger.cut(partition, end, scene.probe.offsets[partition])
        ]
        if (oldest_s := max(lost_s, default=0.0)) > OLDEST_S:
            raise TierError(f"a record is lost that was acknowledged {oldest_s:.1f} s before the end")
        log_bytes = application.log_path.stat().st_size
        application.start_with_empty_disks()
        over_s = time.monotonic()
        scene.brokers(TIMEOUT_S)
        found = committer.found()
        told = _wait_until_told(application.log_path, log_bytes, scene.view.topic, len(ends))
        if told != ends:
            raise TierError(f"the controller told of the ends {told}, and manifests had {ends}")
        beyond = {partition for partition, offset in read.items() if offset > ends[partition]}
        _wait_until_reader_knows(scene, beyond)
        scene.reader.go_on()
        kept_s = committer.committed_s[: found + 1]
        age_s = killed_s - (kept_s[-1] if kept_s else committer.committed_s[0])
        if age_s > OLDEST_S:
            raise TierError(f"the group has offset {found}, which is {age_s:.1f} s old")
    producers = len(scene.probe.failed)
    scene.probe.failed.clear()
    description = (
        f"SIGKILL of everything, all disks gone: {len(lost_s)} acknowledged records lost, beyond ends that "
        f"were named, the oldest {oldest_s:.1f} s old; reading of {len(beyond)} partitions failed, the "
        f"group's offset is {age_s:.1f} s old, and the producer had {producers} errors"
    )
    return Struck(description, frozenset(range(BROKERS)), True, over_s)


def stop_in_order(scene: Scene) -> Struck:
    """Stop the application, remove all directories, and start it again: nothing may be missing.

    Raises:
        TierError: the application did not end, or a group's offset is gone.
    """
    application = scene.application
    with _commits(scene) as committer:
        time.sleep(BEFORE_S)
        committer.stop()
        began_s = time.monotonic()
        application.signal_driver(signal.SIGTERM)
        application.wait_until_ended(TIMEOUT_S)
        took_s = time.monotonic() - began_s
        ends = _ends(application.directory / "bucket", scene)
        time.sleep(DRAIN_S)
        for partition, end in ends.items():
            missing = scene.ledger.cut(partition, end, scene.probe.offsets[partition])
            if missing:
                raise TierError(f"{len(missing)} acknowledged records of partition {partition} are missing")
        application.start_with_empty_disks()
        over_s = time.monotonic()
        scene.brokers(TIMEOUT_S)
        found = committer.found()
        if found != len(committer.committed_s) - 1:
            raise TierError(f"the group has offset {found} of {len(committer.committed_s) - 1}")
    description = f"orderly stop in {took_s:.1f} s, all disks gone"
    return Struck(description, frozenset(range(BROKERS)), True, over_s)


def _commits(scene: Scene) -> Committer:
    group = f"committer-{scene.chance.randrange(10**9)}"
    return Committer(scene.application.bootstrap_servers, group, scene.view.topic)


def _ends(bucket: Path, scene: Scene) -> Mapping[int, int]:
    """Return where the manifest of each partition of the topic ends."""
    (directory,) = {path.parent.parent.name for path in bucket.glob(f"segments/{scene.view.topic}-*/*/*")}
    topic_id = directory.removeprefix(f"{scene.view.topic}-")
    manifests = sorted((bucket / "manifests" / topic_id).iterdir())
    found = {int(path.name): decode_manifest(path.name, path.read_bytes()) for path in manifests}
    return {partition: manifest.end_offset for partition, manifest in found.items()}


def _wait_until_told(log: Path, since_bytes: int, topic: str, partitions: int) -> Mapping[int, int]:
    """Return by partition where the controller says that the topic goes on.

    Raises:
        TierError: it did not say so of all in time.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        with log.open("rb") as file:
            file.seek(since_bytes)
            lines = file.read().decode(errors="replace").splitlines()
        said = [line for line in lines if f"partitions of {topic} go on as follows" in line]
        ends = {int(number): int(offset) for line in said for number, offset in GOES_ON.findall(line)}
        if len(ends) == partitions:
            return ends
        if time.monotonic() > deadline_s:
            raise TierError(f"the controller told of {ends} only")
        time.sleep(POLL_S)


def _wait_until_reader_knows(scene: Scene, beyond: set[int]) -> None:
    """Return when the reader has got an error for each partition in which it had read what is lost.

    Raises:
        TierError: it was not told of one.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while untold := {
        partition
        for partition in beyond
        if not any(each.startswith(f"partition {partition}:") for each in scene.reader.complaints)
    }:
        if time.monotonic() > deadline_s:
            raise TierError(f"the reader was not told that it had read what is lost of {untold}")
        time.sleep(POLL_S)
