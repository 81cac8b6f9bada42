"""An object store as the tier needs it: put, compare-and-swap, ranged reads, lists.

Paths are relative to the prefix of the URI. No method blocks the loop: the work is done in obstore's threads,
or, for directories, in one of Python's. Errors are few, since callers decide by them:

- `ObjectExistsError`, `StaleObjectError`: another writer was faster. Nothing was written.
- `ObjectMissingError`.
- `StoreRefusedError`: credentials, permissions, a bucket that is not there: retrying alone does not help.
- `StoreUnavailableError`: all else. **A write may have happened**: its writer reads before it writes again.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

Version: TypeAlias = str
"""The e-tag by which a store knows the state of an object."""


class StoreError(Exception):
    """The base of this module's errors; the message names the object and the store's reason."""


class ObjectExistsError(StoreError): ...


class StaleObjectError(StoreError): ...


class ObjectMissingError(StoreError): ...


class StoreRefusedError(StoreError): ...


class CorruptSegmentError(StoreError):
    """An object is not the remote segment that its manifest names; the message has name and reason."""


class StoreUnavailableError(StoreError): ...


class StoredObject(NamedTuple):
    data: bytes
    version: Version


class ListedObject(NamedTuple):
    name: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """All methods raise `StoreRefusedError` and `StoreUnavailableError`."""

    @property
    def uri(self) -> str:
        """The URI as configured, without secrets; for messages."""

    async def create(self, name: str, data: bytes | memoryview | Path) -> Version:
        """Write an object that must not exist; from a file it is never in memory as a whole.

        Of two writers of one name one fails, if the object has at most 8 MiB; larger ones bear unique names.

        Raises:
            ObjectExistsError.
        """

    async def replace(self, name: str, data: bytes, version: Version) -> Version:
        """Replace an object that must still be in the state `version`.

        Raises:
            StaleObjectError: it is in another state, or gone.
        """

    async def get(self, name: str) -> StoredObject:
        """Return a whole object.

        Raises:
            ObjectMissingError.
        """

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an object.

        Raises:
            ObjectMissingError.
        """

    async def delete(self, name: str) -> None:
        """Delete an object; one that is not there is no error."""

    def list(self, prefix: str) -> AsyncIterator[ListedObject]:
        """Yield the objects below a path; some written lately may be missing: decide by manifests."""

    async def close(self) -> None: ...
