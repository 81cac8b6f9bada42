"""The files that a snapshot of a table has, by their names in the store."""

from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.types import IntegerType, LongType

from sparklog.driver.controller.tables.machine.table_files import LiveFile
from sparklog.driver.controller.tables.table_errors import TableRefusedError

PARTITION_ID: Final = 1
OFFSET_ID: Final = 2


def live_file(file: DataFile, uri: str) -> LiveFile:
    """Return a data file as one of the store at `uri`.

    Raises:
        TableRefusedError: the file is elsewhere.
    """
    prefix = f"{uri}/"
    path = file.file_path
    if not path.startswith(prefix):
        raise TableRefusedError(
            f"the table has the file {path}, which is not in the store of the cluster, {prefix}: give"
            " sparklog.remote.uri the spelling that the table's files have"
        )
    partition: Any = from_bytes(IntegerType(), file.lower_bounds[PARTITION_ID])
    first: Any = from_bytes(LongType(), file.lower_bounds[OFFSET_ID])
    last: Any = from_bytes(LongType(), file.upper_bounds[OFFSET_ID])
    return LiveFile(path.removeprefix(prefix), partition, first, last)
