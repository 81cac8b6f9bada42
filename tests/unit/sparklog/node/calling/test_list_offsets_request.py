"""One builder makes the ListOffsets requests of clients, followers and the controller."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.list_offsets.v7 import request as list_offsets_v7
from kio.schema.list_offsets.v9 import request as list_offsets_v9
from kio.schema.list_offsets.v11 import request as list_offsets_v11

from sparklog.node.calling.list_offsets_request import AskedOffset, list_offsets_request


@pytest.mark.parametrize("schema", [list_offsets_v7, list_offsets_v9, list_offsets_v11])
def test_request_names_each_topic_once_in_every_version(schema: Any) -> None:
    """Brokers refuse a request that names a topic's partition twice, and a topic twice costs bytes."""
    asked = [AskedOffset("a", 0, -1), AskedOffset("b", 1, 5, 7), AskedOffset("a", 2, -5)]
    request = list_offsets_request(asked, schema=schema, read_committed=True, timeout_ms=50)
    assert [
        (
            topic.name,
            [(each.partition_index, each.timestamp, each.current_leader_epoch) for each in topic.partitions],
        )
        for topic in request.topics
    ] == [("a", [(0, -1, -1), (2, -5, -1)]), ("b", [(1, 5, 7)])]
    assert (request.replica_id, request.isolation_level) == (-1, 1)
    assert getattr(request, "timeout", timedelta(milliseconds=50)) == timedelta(milliseconds=50)
