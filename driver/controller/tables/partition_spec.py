"""How a table of Iceberg is divided."""

from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform

from sparklog.driver.controller.tables.live_files import PARTITION_ID
from sparklog.driver.controller.tables.machine.events import PartitionedBy

TIMESTAMP_ID: Final = 3
_TRANSFORMS: Final[Mapping[PartitionedBy, tuple[int, Transform[Any, Any], str]]] = {
    PartitionedBy.PARTITION: (PARTITION_ID, IdentityTransform(), "partition"),
    PartitionedBy.DAY: (TIMESTAMP_ID, DayTransform(), "timestamp_day"),
    PartitionedBy.HOUR: (TIMESTAMP_ID, HourTransform(), "timestamp_hour"),
}


def partition_spec(partitioned_by: PartitionedBy) -> PartitionSpec:
    found = _TRANSFORMS.get(partitioned_by)
    if found is None:
        return UNPARTITIONED_PARTITION_SPEC
    source_id, transform, name = found
    return PartitionSpec(PartitionField(source_id=source_id, field_id=1000, transform=transform, name=name))


def has_partitions(found: PartitionSpec, partitioned_by: PartitionedBy) -> bool:
    """Return whether a table is divided in this way; the names of its partitions may differ."""
    wanted = partition_spec(partitioned_by)
    return [(each.source_id, str(each.transform)) for each in found.fields] == [
        (each.source_id, str(each.transform)) for each in wanted.fields
    ]
