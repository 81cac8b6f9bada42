"""The objects of a partition that no manifest names any more, until they are deleted.

A swap replaces one version of the manifest, so a manifest that some swap has carried can come into the store
only while that version is there. An object that such a manifest names is therefore kept until another version
was seen; then it is named, or may go.

Segments that a manifest has given up can be files of the topic's table, which has older snapshots than the
newest, and may keep rows for ever. With `keeps_segments` they are left to the driver, which deletes them once
no snapshot has them, and orphans of earlier leaders with them. The manifest names them until a list lacks
them, or has them for the second time: these the table keeps, and when it lets them go the driver knows them
by its commit, or finds them by its own lists.
"""

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from sparklog.executor.tiering.machine.events import DeleteObjects, ListObjects
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_changes import named_objects
from sparklog.node.remote_log.machine.names import SEGMENTS, leader_epoch_of
from sparklog.protocol.types import LeaderEpoch

MOST_DELETED_AT_ONCE: Final = 100


class Deletions:
    def __init__(self, leader_epoch: LeaderEpoch) -> None:
        self.effect: DeleteObjects | ListObjects | None = None
        """The one under way."""
        self.deleted: set[str] = set()
        """Names that the manifest in the store still has as unreferenced, and that the next one lacks."""
        self._leader_epoch: Final = leader_epoch
        self._attempted: set[str] = set()
        """Named by manifests that swaps have carried since the version in the store was seen first."""
        self._given_up: set[str] = set()
        """Those of `_attempted` that this machine gives up."""
        self._unnamed: dict[str, None] = {}
        """To be deleted, in this order."""
        self.keeps_segments = False
        """Whether segments of the manifest's `unreferenced` stay, and those that no manifest names."""
        self._left: frozenset[str] = frozenset()
        """Segments of `unreferenced`."""
        self._listed_once: frozenset[str] = frozenset()
        """Those of `_left` that the last list had."""

    def attempted(self, manifest: Manifest) -> None:
        """Note that a swap carries this manifest."""
        self._attempted |= named_objects(manifest)

    def give_up(self, names: Iterable[str]) -> None:
        """Delete objects of this machine as soon as no swap can bring them into a manifest."""
        for name in names:
            if name in self._attempted:
                self._given_up.add(name)
            else:
                self._unnamed[name] = None

    def confirmed(self, manifest: Manifest) -> None:
        """Note that this manifest is in the store, in a version that was not there before."""
        named = named_objects(manifest)
        self._attempted.clear()
        self._unnamed.update(dict.fromkeys(sorted(self._given_up - named)))
        self._given_up.clear()
        self._left = frozenset(name for name in manifest.unreferenced if name.startswith(SEGMENTS))
        self.deleted &= set(manifest.unreferenced)
        self._unnamed.update(
            dict.fromkeys(name for name in manifest.unreferenced if name not in self.deleted)
        )

    def listed(self, names: Iterable[str], manifest: Manifest, in_use: Collection[str]) -> None:
        """Delete those of the listed objects that neither the manifest in the store nor this machine uses.

        An object of a later leader epoch may be in a manifest that this machine has not seen. Of an object
        that is being written there may be a part, under its name with a suffix.
        """
        kept = named_objects(manifest) | self._attempted
        names = tuple(names)
        if self.keeps_segments:
            still_there = self._left.intersection(names)
            self.deleted |= self._left - still_there
            for name in still_there & self._listed_once:
                self.deleted.add(name)
                self._unnamed.pop(name, None)
            self._listed_once = still_there
            names = tuple(name for name in names if not name.startswith(SEGMENTS))
        for name in names:
            leader_epoch = leader_epoch_of(name)
            if leader_epoch is None or leader_epoch > self._leader_epoch:
                continue
            if name not in kept and not name.startswith(tuple(in_use)):
                self._unnamed[name] = None

    def next(self) -> DeleteObjects | None:
        """Return the next effect and let it be under way; None for none."""
        if self.effect is not None:
            return None
        left = self._left if self.keeps_segments else frozenset[str]()
        due = tuple(islice((name for name in self._unnamed if name not in left), MOST_DELETED_AT_ONCE))
        if due:
            self.effect = DeleteObjects(due)
        return self.effect

    def done(self, names: Iterable[str]) -> None:
        self.effect = None
        for name in names:
            self._unnamed.pop(name, None)
            self.deleted.add(name)
