"""Opening the store of a URI, and the check that everything the tier does there is allowed and works."""

import uuid
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    StaleObjectError,
    StoreError,
    StoreRefusedError,
)
from sparklog.node.remote_log.uri import OPTION_PREFIX, RemoteUriError, parse_remote_uri

T = TypeVar("T")

_PROBES: Final = "access-check"
_FIRST: Final = b"sparklog checks whether it may write, replace, read, list and delete here"
_SECOND: Final = b"replaced"


def open_store(uri: str, options: Mapping[str, str]) -> ObjectStore:
    """Return the store below a URI; `options` have their names without `sparklog.remote.option.`.

    Nothing is sent: `check_access` does.

    Raises:
        RemoteUriError: the URI or an option is not usable.
    """
    parsed = parse_remote_uri(uri)
    if parsed.scheme == "file":
        if options:
            raise RemoteUriError(f"{OPTION_PREFIX}{min(options)}: a directory (file://) has no options")
        return DirectoryStore(Path(parsed.path))
    # Only clusters over a cloud's store load its client.
    from sparklog.node.remote_log.cloud_options import open_clients
    from sparklog.node.remote_log.cloud_store import CloudStore

    return CloudStore(parsed, open_clients(parsed, options))


async def check_access(store: ObjectStore) -> None:
    """Do once to an object of its own what the tier does: the message of a failure names what is missing.

    Raises:
        StoreRefusedError: a permission, the bucket or credentials are missing, or the store does not keep
            conditions, by which writers see each other.
        StoreUnavailableError: the store could not be reached.
    """
    name = f"{_PROBES}/{uuid.uuid4().hex}"
    version = await _allowed("write", store.create(name, _FIRST))
    try:
        with suppress(ObjectExistsError):
            await _allowed("write", store.create(name, _SECOND))
            raise _lacks(store, f"If-None-Match: it overwrote {name}, which existed")
        await _allowed("replace", store.replace(name, _SECOND, version))
        with suppress(StaleObjectError):
            await _allowed("replace", store.replace(name, _FIRST, version))
            raise _lacks(store, f"If-Match: it replaced {name} although that had changed")
        found = await _allowed("read", store.get_range(name, 0, len(_SECOND)))
        if found != _SECOND:
            raise _lacks(store, f"read-after-write: {name} was replaced, and its former bytes were read")
        await _allowed("list", _list_once(store))
    except BaseException:
        with suppress(StoreError):  # the first failure says more
            await store.delete(name)
        raise
    await _allowed("delete", store.delete(name))
    with suppress(ObjectMissingError):
        await store.get(name)
        raise _lacks(store, f"deletion: {name} is there after it was deleted")


async def _list_once(store: ObjectStore) -> None:
    async for _ in store.list(_PROBES):
        return


async def _allowed(action: str, call: Awaitable[T]) -> T:
    """Return the result of `call`, or raise its refusal with the permission that it needs."""
    try:
        return await call
    except StoreRefusedError as error:
        raise StoreRefusedError(f"the tier may not {action} objects: {error}") from error


def _lacks(store: ObjectStore, what: str) -> StoreRefusedError:
    return StoreRefusedError(f"{store.uri}: the store lacks {what}; the tier needs it to keep writers apart")
