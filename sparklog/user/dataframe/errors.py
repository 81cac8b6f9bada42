"""Errors that users of the data source see; all but lost data and wrong rows come before a query runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparklog.protocol.errors import KafkaError
from sparklog.user.sink.machine.errors import SinkError

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""Environment variable by which PySpark's workers hide a traceback (pyspark.util.handle_worker_exception)."""


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """In a Spark worker: report an error with cause and remedy to the user without a traceback.

    The traceback would only show the path through this package, with the message at its end. A worker reports
    one exception and ends, so nothing else is hidden.
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
    """A DataFrame's or a user's schema does not fit records."""


class InvalidRowError(ValueError):
    """A row that cannot become a record; rows before it may have been written."""


class DataLossError(RuntimeError):
    """Requested offsets are gone, and `failOnDataLoss` is true."""

    def __init__(self, what_was_lost: str) -> None:
        super().__init__(
            f"{what_was_lost}. Either the records were deleted (retention, DeleteRecords) or the topic was "
            "deleted or created again since the offsets were chosen. To read what is left instead, with a "
            "warning, set the source option failOnDataLoss to false."
        )
