"""What a user of the data source can be told. All but data loss are raised before a query runs."""

__all__ = ["DataLossError", "DataSourceOptionError", "DataSourceSchemaError"]


class DataSourceOptionError(ValueError):
    """An option is missing, malformed, unknown, or contradicts another; the message names the alternative."""


class DataSourceSchemaError(ValueError):
    """A DataFrame's or a user's schema is not one that records have."""


class DataLossError(RuntimeError):
    """Offsets that were asked for are gone, and `failOnDataLoss` says that this matters."""

    def __init__(self, what_was_lost: str) -> None:
        super().__init__(
            f"{what_was_lost}. Either the records were deleted (retention, DeleteRecords) or the topic was "
            "deleted or created anew since the offsets were chosen. To read what is left instead, with a "
            "warning, set the source option failOnDataLoss to false."
        )
