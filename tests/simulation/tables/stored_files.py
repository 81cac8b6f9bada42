"""The files in the store, as a committer sees them: their figures, pieces of them, and who has them."""

from sparklog.driver.controller.tables.machine.events import FindHeld, HeldFile, PartitionedBy
from sparklog.driver.controller.tables.machine.next_commit import partition_value
from sparklog.driver.controller.tables.machine.table_files import TableFile, Window, piece_name
from tests.simulation.tables.catalogue import SimulatedCatalogue
from tests.simulation.tables.tier import TOPIC, TOPIC_ID, SimulatedTier, StoredRows


class StoredFiles:
    def __init__(
        self, tier: SimulatedTier, catalogue: SimulatedCatalogue, partitioned_by: PartitionedBy
    ) -> None:
        self._tier = tier
        self._catalogue = catalogue
        self._partitioned_by = partitioned_by

    def held(self, effect: FindHeld) -> tuple[HeldFile, ...]:
        found = {}
        for id in effect.snapshot_ids:
            stored = self._catalogue.stored(id)
            files = {} if stored is None else stored.files
            found |= {name: HeldFile(name, id, 1) for name in effect.names if name in files}
        return tuple(found.values())

    def file(self, name: str) -> TableFile:
        stored = self._tier.objects[name]
        offsets = [offset for offset, _, _ in stored.rows]
        times = [time for _, time, _ in stored.rows]
        return TableFile(
            name,
            stored.partition,
            min(offsets),
            max(offsets),
            min(times),
            max(times),
            len(offsets),
            100,
            (4,),
        )

    def write(self, window: Window) -> tuple[TableFile, ...]:
        by_value: dict[int, list[tuple[int, int, int]]] = {}
        for row in self._tier.objects[window.segment.name].rows:
            if window.start_offset <= row[0] < window.end_offset:
                by_value.setdefault(partition_value(self._partitioned_by, row[1]), []).append(row)
        files = []
        for value, rows in sorted(by_value.items()):
            name = piece_name(TOPIC, TOPIC_ID, window, value)
            self._tier.objects.setdefault(name, StoredRows(window.partition, tuple(rows)))
            files.append(self.file(name))
        return tuple(files)
