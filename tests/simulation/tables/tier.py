"""The tier of one topic: manifests and objects, changed at random as leaders change them."""

import random
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID

from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_changes import (
    appended,
    cut,
    empty_manifest,
    replaced,
    started_at,
    with_deleted,
)
from sparklog.node.remote_log.machine.names import segment_file_name, segments_prefix

TOPIC: Final = "t"
TOPIC_ID: Final = UUID(int=7)
DAY_MS: Final = 24 * 60 * 60 * 1000


Rows: TypeAlias = tuple[tuple[int, int, int], ...]


class ViolationError(AssertionError):
    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


@dataclass(frozen=True)
class StoredRows:
    """An object: the offsets of its records, with their timestamps and the lineage that they are of."""

    partition: int
    rows: Rows


class SimulatedTier:
    def __init__(self, randomness: random.Random, partitions: int, *, mixed_days: bool) -> None:
        self._random = randomness
        self._mixed_days = mixed_days
        self.objects: dict[str, StoredRows] = {}
        self.manifests: dict[int, Manifest] = {}
        self.owner_epoch = 1
        self._names = 0
        self._lineage = 0
        self._leader_epochs = dict.fromkeys(range(partitions), 0)
        self._left: dict[int, set[str]] = {}
        """By partitions: unreferenced objects that the last list had."""
        self._uploaded: dict[int, tuple[int, RemoteSegment]] = {}
        """By partitions: an object that is in no manifest yet, and the leader epoch of its writer."""
        self.lost_to_cuts: set[tuple[int, int, int]] = set()
        """(partition, offset, lineage) of the records in objects that an unclean election has cut."""
        for partition in range(partitions):
            self.manifests[partition] = empty_manifest(
                TOPIC, TOPIC_ID, partition, start_offset=0, owner_epoch=1, leader_epoch=0
            )

    def change(self) -> str:
        """Change one partition as its leader would; return how."""
        partition = self._random.choice(list(self.manifests))
        weights = {
            self._upload: 3,
            self._copy: 8,
            self._merge: 4,
            self._expire: 2,
            self._delete_records: 1,
            self._cut: 0.5,
            self._elect: 1,
            self._list: 1,
        }
        chosen = self._random.choices(list(weights), list(weights.values()))[0]
        chosen(partition)
        return f"{chosen.__name__} {partition}"

    def lose_newest(self) -> None:
        self._cut(self._random.choice(list(self.manifests)))

    def _put(
        self, partition: int, base: int, end: int, rows: tuple[tuple[int, int, int], ...]
    ) -> RemoteSegment:
        self._names += 1
        leader_epoch = self._leader_epochs[partition]
        file_name = segment_file_name(base, leader_epoch, f"{self._names:08x}-1")
        name = segments_prefix(TOPIC, TOPIC_ID, partition) + file_name
        self.objects[name] = StoredRows(partition, rows)
        times = [time for _, time, _ in rows]
        return RemoteSegment(name, base, end, len(rows), 100, 100, min(times), max(times), 0)

    def _swap(self, manifest: Manifest) -> None:
        partition = manifest.partition
        self.manifests[partition] = replace(
            manifest, owner_epoch=self.owner_epoch, leader_epoch=self._leader_epochs[partition]
        )

    def _upload(self, partition: int) -> None:
        """Write the next object, which the manifest does not name yet."""
        base = self.manifests[partition].end_offset
        end = base + self._random.randint(1, 6)
        offsets = [offset for offset in range(base, end) if self._random.random() < 0.8] or [base]
        day = self._random.randint(0, 1)
        rows = []
        for offset in offsets:
            of_record = self._random.randint(0, 2) if self._mixed_days else day
            rows.append((offset, of_record * DAY_MS + offset, self._lineage))
        segment = self._put(partition, base, end, tuple(rows))
        self._uploaded[partition] = self._leader_epochs[partition], segment

    def _copy(self, partition: int) -> None:
        manifest = self.manifests[partition]
        leader_epoch, segment = self._uploaded.pop(partition, (-1, None))
        is_usable = leader_epoch == self._leader_epochs[partition]
        if segment is None or not is_usable or segment.base_offset != manifest.end_offset:
            self._upload(partition)
            _, segment = self._uploaded.pop(partition)
        self._swap(appended(manifest, segment.end_offset, segment, None, ()))

    def visible(self, segment: RemoteSegment) -> list[tuple[int, int, int]]:
        rows = self.objects[segment.name].rows
        return [row for row in rows if segment.base_offset <= row[0] < segment.end_offset]

    def _merge(self, partition: int) -> None:
        manifest = self.manifests[partition]
        if len(manifest.segments) < 2:
            return
        first = self._random.randrange(len(manifest.segments) - 1)
        run = manifest.segments[first : first + self._random.randint(2, 4)]
        rows = tuple(row for segment in run for row in self.visible(segment))
        merged = self._put(partition, run[0].base_offset, run[-1].end_offset, rows) if rows else None
        new = replaced(manifest, run, merged)
        assert new is not None
        self._swap(new)

    def _expire(self, partition: int) -> None:
        manifest = self.manifests[partition]
        if manifest.segments:
            self._swap(started_at(manifest, manifest.segments[0].end_offset))

    def _delete_records(self, partition: int) -> None:
        manifest = self.manifests[partition]
        if manifest.end_offset > manifest.log_start_offset:
            start = self._random.randint(manifest.log_start_offset, manifest.end_offset)
            self._swap(started_at(manifest, start))

    def _cut(self, partition: int) -> None:
        manifest = self.manifests[partition]
        end = manifest.end_offset - self._random.randint(1, 4)
        if end <= manifest.log_start_offset:
            return
        for segment in manifest.segments:
            if segment.end_offset > end:
                # Of an object that was cut in part a table may lose all: retention can take the rest first.
                self.lost_to_cuts |= {
                    (partition, offset, lineage) for offset, _, lineage in self.visible(segment)
                }
        self._lineage += 1
        self._leader_epochs[partition] += 1
        self._swap(cut(manifest, end))

    def _elect(self, partition: int) -> None:
        self._leader_epochs[partition] += 1
        self._swap(self.manifests[partition])

    def _list(self, partition: int) -> None:
        """Forget unreferenced objects, as leaders do by lists: deleted ones, and those that a table keeps."""
        manifest = self.manifests[partition]
        names = set(manifest.unreferenced)
        left = names & self.objects.keys()
        self._swap(with_deleted(manifest, names - (left - self._left.get(partition, set()))))
        self._left[partition] = left

    def rows(self, partition: int, *, from_log_start: bool) -> set[tuple[int, int, int]]:
        """Return (partition, offset, lineage) of the records that the topic has."""
        manifest = self.manifests[partition]
        start = manifest.log_start_offset if from_log_start else 0
        return {
            (partition, offset, lineage)
            for segment in manifest.segments
            for offset, _, lineage in self.visible(segment)
            if offset >= start
        }
