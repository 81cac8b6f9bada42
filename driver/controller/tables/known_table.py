"""The table that a topic has had so far, by the topic's marker: another one never takes its place by itself.

With retention `forever` the files of rows that the topic has left are named by the table alone. A catalogue
that lacks it, because of a rename, a restored backup or another catalogue's address, must not lead to an
empty table, beside which these files would look as if nothing had them.
"""

from dataclasses import dataclass
from uuid import UUID

from sparklog.driver.controller.tables.table_errors import TableGoneError, TableRefusedError


@dataclass(frozen=True, slots=True)
class KnownTable:
    table_uuid: UUID | None = None
    """None if the topic has had no table yet."""
    keeps_rows: bool = False
    """Whether rows stay that the topic has left."""
    marker: str = ""
    """The name of the marker in the store."""
    is_topic_deleted: bool = False
    """Its table is not made again."""

    def check_may_create(self, table: str) -> None:
        """Check that the catalogue may lack the table.

        Raises:
            TableGoneError: the topic is deleted.
            TableRefusedError: rows would be lost.
        """
        if self.is_topic_deleted:
            raise TableGoneError(f"the catalogue has no table {table}")
        if self._must_be_found:
            raise TableRefusedError(f"the catalogue has no table {table}, {self._advice(table)}")

    def check_is(self, table: str, found: UUID) -> None:
        """Check that the table under the name is the one of before.

        Raises:
            TableGoneError: it is not, and the topic is deleted.
            TableRefusedError: rows would be lost.
        """
        if self._must_be_found and found != self.table_uuid:
            self.check_needs_table(table)
            raise TableRefusedError(f"{table} is another table, {found}, {self._advice(table)}")

    def check_needs_table(self, table: str) -> None:
        """Check that the topic is not deleted; `table` is another's.

        Raises:
            TableGoneError.
        """
        if self.is_topic_deleted:
            raise TableGoneError(f"{table} is another table by now")

    @property
    def _must_be_found(self) -> bool:
        return self.keeps_rows and self.table_uuid is not None

    def _advice(self, table: str) -> str:
        return (
            f"while rows are kept for ever in table {self.table_uuid}: register that one as {table}, or"
            f" rename it back; to give up its rows and begin again, delete {self.marker} in the object store"
        )
