"""Tables of topics that a former controller has deleted, by their markers in the store."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from sparklog.driver.controller.tables.machine.events import Retention
from sparklog.driver.controller.tables.table_marker import TableMarker, encode_marker
from sparklog.driver.controller.tables.topic_tables import TopicTables
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage, TopicImage
from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.machine.names import table_marker_name
from sparklog.node.remote_log.object_store import StoredObject
from tests.builders import image
from tests.unit.executor.brokers import until


async def owns_store() -> bool:
    return True


class SilentOnceCatalog(SqlCatalog):
    """The first one never answers."""

    opened = 0
    end = threading.Event()

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._is_silent = type(self).opened == 0
        type(self).opened += 1

    def load_table(self, identifier: Any) -> Any:
        if self._is_silent:
            self.end.wait()
        return super().load_table(identifier)


def marked(number: int) -> TableMarker:
    return TableMarker(f"t{number}", UUID(int=number), f"topics.t{number}", Retention.TOPIC, "none", 1)


def config_in(directory: Path, **catalog: str) -> BrokerConfig:
    given = {"uri": f"sqlite:///{directory}/catalogue.db", "warehouse": directory.as_uri(), **catalog}
    keys = {f"sparklog.table.catalog.{name.replace('_', '-')}": value for name, value in given.items()}
    return BrokerConfig.from_mapping({"sparklog.remote.uri": (directory / "bucket").as_uri(), **keys})


def test_marker_that_is_damaged_stops_no_other_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The objects of all deleted topics would stay for ever because of one."""
    bucket = tmp_path / "bucket"
    damaged, strange, good = (bucket / table_marker_name(UUID(int=number)) for number in (1, 2, 3))
    good.parent.mkdir(parents=True)
    damaged.write_bytes(b"\xff")
    strange.write_text(json.dumps({**json.loads(encode_marker(marked(2))), "partitioned_by": "week"}))
    good.write_bytes(encode_marker(marked(3)))
    finished: list[str] = []
    config = config_in(tmp_path)

    async def play() -> None:
        store = DirectoryStore(bucket)
        tables = TopicTables(store, config, 1, owns_store, lambda topic, _: finished.append(topic))
        tables.committed(MetadataImage())
        await until(lambda: finished == ["t3"], "the table without damage is finished")
        await tables.close()

    asyncio.run(play())
    lines = [record.getMessage() for record in caplog.records]
    assert sum("stays as it is" in line for line in lines) == 2


class SlowStore(DirectoryStore):
    """A store whose first reads wait."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.read: set[str] = set()
        self.may_go_on = asyncio.Event()

    async def get(self, name: str) -> StoredObject:
        found = await super().get(name)
        is_first = not self.read
        self.read.add(name)
        if not is_first:
            await self.may_go_on.wait()
        return found


def test_table_of_a_topic_that_is_deleted_while_markers_are_read_is_begun(tmp_path: Path) -> None:
    """Its marker was passed while the topic was there, and none would look at it until the next election."""
    bucket = tmp_path / "bucket"
    for number in (1, 2):
        path = bucket / table_marker_name(UUID(int=number))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_marker(marked(number)))
    topics = [TopicImage(f"t{number}", UUID(int=number), {}) for number in (1, 2)]
    finished: set[str] = set()

    async def play() -> None:
        store = SlowStore(bucket)
        tables = TopicTables(store, config_in(tmp_path), 1, owns_store, lambda topic, _: finished.add(topic))
        tables.committed(image(topics=topics))
        await until(lambda: len(store.read) == 2, "one marker is passed, and the other one is read")
        tables.committed(image())
        store.may_go_on.set()
        await until(lambda: finished == {"t1", "t2"}, "both tables are finished")
        await tables.close()

    asyncio.run(play())


def test_table_whose_call_was_given_up_goes_on_with_a_new_catalogue(tmp_path: Path) -> None:
    """A thread that waits still has the connection, or the lock, of the one before."""
    bucket = tmp_path / "bucket"
    path = bucket / table_marker_name(UUID(int=1))
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_marker(marked(1)))
    finished: list[str] = []
    config = config_in(tmp_path, py_catalog_impl=f"{__name__}.{SilentOnceCatalog.__name__}")

    async def play() -> None:
        tables = TopicTables(
            DirectoryStore(bucket),
            config,
            1,
            owns_store,
            lambda topic, _: finished.append(topic),
            silence_s=4.0,
        )
        tables.committed(MetadataImage())
        await until(lambda: finished == ["t1"], "the table is finished")
        await tables.close()

    try:
        asyncio.run(play())
    finally:
        SilentOnceCatalog.end.set()
    assert SilentOnceCatalog.opened == 2
