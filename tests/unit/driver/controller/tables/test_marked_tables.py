"""Tables of topics that a former controller has deleted, by their markers in the store."""

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.driver.controller.tables.machine.events import Retention
from sparklog.driver.controller.tables.table_marker import TableMarker, encode_marker
from sparklog.driver.controller.tables.topic_tables import TopicTables
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.machine.names import table_marker_name
from tests.unit.executor.brokers import until


async def owns_store() -> bool:
    return True


def marked(number: int) -> TableMarker:
    return TableMarker(f"t{number}", UUID(int=number), f"topics.t{number}", Retention.TOPIC, "none", 1)


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
    config = BrokerConfig.from_mapping(
        {
            "sparklog.remote.uri": bucket.as_uri(),
            "sparklog.table.catalog.uri": f"sqlite:///{tmp_path}/catalogue.db",
            "sparklog.table.catalog.warehouse": tmp_path.as_uri(),
        }
    )

    async def play() -> None:
        store = DirectoryStore(bucket)
        tables = TopicTables(store, config, 1, owns_store, lambda topic, _: finished.append(topic))
        tables.committed(MetadataImage())
        await until(lambda: finished == ["t3"], "the table without damage is finished")
        await tables.close()

    asyncio.run(play())
    lines = [record.getMessage() for record in caplog.records]
    assert sum("stays as it is" in line for line in lines) == 2
