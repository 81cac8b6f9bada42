"""The check before a start: a store that does not do what the tier relies on is refused by what it lacks."""

import asyncio

import pytest

from sparklog.node.remote_log.object_store import (
    ObjectStore,
    StoreRefusedError,
    StoreUnavailableError,
    Version,
)
from sparklog.node.remote_log.opened_store import check_access
from tests.faulty_store import FaultyStore, MemoryStore, StoreFaults


class WithoutIfNoneMatch(MemoryStore):
    """Overwrites, as servers do that do not know the header."""

    async def create(self, name: str, data: object) -> Version:
        self.objects.pop(name, None)
        assert isinstance(data, bytes)
        return await super().create(name, data)


class WithoutIfMatch(MemoryStore):
    async def replace(self, name: str, data: bytes, version: Version) -> Version:
        return await super().replace(name, data, self.objects[name].version)


class WithoutDeletion(MemoryStore):
    async def delete(self, name: str) -> None:
        pass


class WithoutPermissionToDelete(MemoryStore):
    async def delete(self, name: str) -> None:
        raise StoreRefusedError(f"{self.uri}: cannot delete {name}: 403 Forbidden")


@pytest.mark.parametrize(
    ("store", "lacking"),
    [
        (WithoutIfNoneMatch(), "lacks If-None-Match"),
        (WithoutIfMatch(), "lacks If-Match"),
        (WithoutDeletion(), "lacks deletion"),
        (WithoutPermissionToDelete(), "may not delete"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_store_that_lacks_something_is_refused_by_its_name(store: ObjectStore, lacking: str) -> None:
    """Two applications would otherwise write over each other, or the bucket grow forever."""
    with pytest.raises(StoreRefusedError, match=lacking):
        asyncio.run(check_access(store))


def test_store_that_is_away_is_unavailable_and_not_refused() -> None:
    """The user need not look for permissions."""
    store = FaultyStore(MemoryStore(), StoreFaults(), seed=0)
    store.is_gone = True
    with pytest.raises(StoreUnavailableError):
        asyncio.run(check_access(store))


def test_failed_check_cleans_up_where_it_may() -> None:
    """Checks of a server that lacks conditions are repeated while the user configures it."""
    store = WithoutIfMatch()
    with pytest.raises(StoreRefusedError):
        asyncio.run(check_access(store))
    assert store.objects == {}
