"""The objects that are out of the table, until no snapshot can have them and they are deleted.

An object is out when neither a manifest nor the newest snapshot names it. It is not named again: a manifest
gives a segment up for good, and pieces belong to segments. Snapshots older than the one at which it was seen
to be out may have it; once they have expired, nothing has.
"""

from collections.abc import Collection, Iterable
from typing import Final

from sparklog.driver.controller.tables.machine.table_files import TABLES
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.names import SEGMENTS

MOST_DELETED_AT_ONCE: Final = 100
LISTING_INTERVAL_MS: Final = 6 * 60 * 60 * 1000


class TableDeletions:
    def __init__(self, listing_interval_ms: int) -> None:
        self._listing_interval_ms: Final = listing_interval_ms
        self._out_since: dict[str, int] = {}
        """The sequence numbers of the snapshots at which objects were out first."""
        self._deleted: set[str] = set()
        """Objects that manifests still have as unreferenced."""
        self._next_listing_ms = 0

    def note_out(self, manifests: Iterable[Manifest], live: Collection[str], sequence_number: int) -> None:
        """Note the segments that these manifests have given up, and `live`, the files of a snapshot, lacks.

        Leaders delete the states of producers by themselves.
        """
        unreferenced = dict.fromkeys(
            name for each in manifests for name in each.unreferenced if name.startswith(SEGMENTS)
        )
        self._deleted &= unreferenced.keys()
        for name in unreferenced:
            if name not in self._deleted and name not in live:
                self._out_since.setdefault(name, sequence_number)

    def pieces_out(self, names: Iterable[str], sequence_number: int) -> None:
        """Note files that a commit has removed; segments among them are in manifests' `unreferenced`."""
        for name in names:
            if name.startswith(TABLES):
                self._out_since.setdefault(name, sequence_number)

    def orphans_found(self, names: Iterable[str], sequence_number: int) -> None:
        """Note objects that neither a manifest nor this snapshot names, and that none will name."""
        for name in names:
            self._out_since.setdefault(name, sequence_number)

    def wanted_again(self, names: Iterable[str]) -> None:
        """Note pieces that a commit is about to add."""
        for name in names:
            self._out_since.pop(name, None)

    def due(self, oldest_sequence_number: int) -> tuple[str, ...]:
        """Return objects to delete, while this is the oldest snapshot that has not expired."""
        due = (name for name, since in self._out_since.items() if since <= oldest_sequence_number)
        return tuple(name for name, _ in zip(due, range(MOST_DELETED_AT_ONCE), strict=False))

    def deleted(self, names: Iterable[str]) -> None:
        for name in names:
            self._out_since.pop(name, None)
            if name.startswith(SEGMENTS):
                self._deleted.add(name)

    def is_listing_due(self, now_ms: int) -> bool:
        """Return whether objects that a crash has left are looked for; once more a few hours later."""
        if now_ms < self._next_listing_ms:
            return False
        self._next_listing_ms = now_ms + self._listing_interval_ms
        return True
