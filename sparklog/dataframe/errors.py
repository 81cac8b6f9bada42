"""What a user of the data source can be told; all but lost data and wrong rows before a query runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparklog.errors import KafkaError
from sparklog.sink.machine.errors import SinkError

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""What PySpark's workers look at when they hand an exception over (pyspark.util.handle_worker_exception)."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """In a Spark worker: have an error that names cause and remedy reach the user without a traceback.

    That would be all of the path through this package, of no use to him, with the message at its end. A
    worker hands one exception over and ends, so nothing else is hidden.
    """
    try:
        yield
    except (
        DataSourceOptionError,
        DataSourceSchemaError,
        DataLossError,
        InvalidRowError,
        KafkaError,
        SinkError,
    ):
        os.environ[_HIDE_TRACEBACK] = "1"
        raise


class DataSourceOptionError(ValueError):
    """An option is missing, malformed, unknown, or contradicts another; the message names the alternative."""


class DataSourceSchemaError(ValueError):
    """A DataFrame's or a user's schema is not one that records have."""


class InvalidRowError(ValueError):
    """A row that cannot become a record; rows before it may have been written."""


class DataLossError(RuntimeError):
    """Offsets that were asked for are gone, and `failOnDataLoss` says that this matters."""

    def __init__(self, what_was_lost: str) -> None:
        super().__init__(
            f"{what_was_lost}. Either the records were deleted (retention, DeleteRecords) or the topic was "
            "deleted or created anew since the offsets were chosen. To read what is left instead, with a "
            "warning, set the source option failOnDataLoss to false."
        )
