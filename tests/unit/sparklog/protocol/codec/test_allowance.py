"""What one request may take of memory, its answer included: enough for Kafka's clients, and no more."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

import pytest
from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic

from sparklog.node.apis.table import FORWARDED_APIS, memory_times
from sparklog.protocol.codec.allowance import items_allowance_bytes
from sparklog.protocol.codec.apis import ApiKey, known_versions
from sparklog.protocol.codec.frames import (
    read_request_body_in_steps,
    read_request_header,
    request_codec,
    request_encoder,
)
from sparklog.protocol.codec.guard import TooManyItemsError
from sparklog.protocol.codec.steps import in_one_go
from tests.amplification.cluster import Listening, Target, attacked_cluster
from tests.amplification.measures import peak_memory_bytes, traced_memory
from tests.amplification.shapes import Contents, Known, Shape, frame_of, shapes_of
from tests.own_process import in_own_process

KNOWN: Final = Known("t", UUID(int=1))
SMALL_BYTES: Final = 1 << 20
"""A smaller bound, by which the largest request is made and measured sooner."""
TRIES: Final = 3
"""Of a request that seems to have taken more: whatever else the process does meanwhile takes memory, too."""
OF_PARTITIONS: Final = frozenset({"partitions", "partition_data"})
"""Inner arrays whose items are answered one by one."""

OF_CLIENTS: Final = (
    (ApiKey.FETCH, ("topics", "partitions"), 10_000),
    (ApiKey.FETCH, ("forgotten_topics_data", "partitions"), 10_000),
    (ApiKey.PRODUCE, ("topic_data", "partition_data"), 10_000),
    (ApiKey.LIST_OFFSETS, ("topics", "partitions"), 10_000),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, ("topics", "partitions"), 10_000),
    (ApiKey.DELETE_RECORDS, ("topics", "partitions"), 10_000),
    (ApiKey.METADATA, ("topics",), 10_000),
    (ApiKey.DESCRIBE_CONFIGS, ("resources",), 10_000),
    (ApiKey.DELETE_TOPICS, ("topics",), 10_000),
    (ApiKey.ELECT_LEADERS, ("topic_partitions", "partitions"), 10_000),
    (ApiKey.FIND_COORDINATOR, ("coordinator_keys",), 10_000),
    (ApiKey.CREATE_TOPICS, ("topics",), 5_000),
    (ApiKey.CREATE_TOPICS, ("topics", "configs"), 10_000),
)


def read(frame: bytes) -> object:
    """Return the entity in a frame with its length."""
    (api_key, version, _, _), position = read_request_header(frame[4:])
    codec = request_codec(api_key, version)._replace(memory_times=memory_times(api_key))
    return in_one_go(read_request_body_in_steps(codec, frame[4:], position))


@pytest.mark.parametrize(("api_key", "path", "count"), OF_CLIENTS)
def test_largest_request_of_kafkas_own_clients_is_read(
    api_key: ApiKey, path: tuple[str, ...], count: int
) -> None:
    """A follower names all its partitions in one Fetch, and an admin client all topics in one request."""
    shape = Shape(api_key, known_versions(api_key).max_version, path, Contents.DISTINCT)
    assert read(frame_of(shape, count, KNOWN)) is not None


def test_fetch_of_ten_thousand_topics_of_a_partition_each_is_read() -> None:
    """A follower whose leader refuses this never gets into sync: it names no fewer the next time."""
    fetch = FetchRequest(
        max_wait=timedelta(0),
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=0,
        forgotten_topics_data=(),
        rack_id="",
        topics=tuple(
            FetchTopic(
                topic_id=UUID(int=number + 1),
                partitions=(FetchPartition(partition=0, fetch_offset=number, partition_max_bytes=1),),
            )
            for number in range(10_000)
        ),
    )
    chunks: list[Any] = request_encoder("follower")(fetch, 1)
    assert read(b"".join(chunks)) == fetch


@pytest.mark.parametrize("api_key", [ApiKey.FIND_COORDINATOR, ApiKey.ELECT_LEADERS, ApiKey.METADATA])
def test_request_of_one_item_more_than_the_allowance_is_refused(api_key: ApiKey) -> None:
    """The answer to a million empty keys would take 600 bytes for each byte received."""
    versions = known_versions(api_key)
    for shape in shapes_of(api_key, versions):
        if shape.version == versions.max_version and shape.contents is Contents.EMPTY:
            most = items_allowance_bytes(memory_times(api_key)) // shape.item_memory_bytes()
            with pytest.raises(TooManyItemsError):
                read(frame_of(shape, most + 1, KNOWN))


def attacks(listening: Listening) -> Iterator[Shape]:
    """Yield what costs most of each API that may have many items: items that differ.

    What a broker forwards is left out: it would be counted together with what the controller takes.
    """
    is_controller = listening.name == "controller"
    for api_key in listening.many if is_controller else listening.many - FORWARDED_APIS:
        versions = listening.versions[api_key]
        for shape in shapes_of(api_key, versions):
            is_costly = len(shape.path) == 1 or (shape.path and shape.path[-1] in OF_PARTITIONS)
            if shape.version == versions.max_version and shape.contents is Contents.DISTINCT and is_costly:
                yield shape


@in_own_process
def test_largest_request_of_every_api_takes_no_more_memory_with_its_answer_than_one_may(
    tmp_path: Path,
) -> None:
    """What an answer takes was measured when its API was built, and grows with what is added to it."""
    logging.disable(logging.CRITICAL)
    too_much: list[str] = []

    async def scenario() -> None:
        async with asyncio.timeout(110), attacked_cluster(tmp_path) as target:
            with traced_memory():
                for listening in target.listeners:
                    for shape in attacks(listening):
                        await measure(target, listening, shape)

    async def measure(target: Target, listening: Listening, shape: Shape) -> None:
        most = items_allowance_bytes(memory_times(shape.api_key)) // shape.item_memory_bytes()
        _, before = await peak_memory_bytes(listening.port, frame_of(shape, 2, target.known))
        frame = frame_of(shape, most, target.known)
        peaks = []
        for _ in range(TRIES):
            _, peak = await peak_memory_bytes(listening.port, frame)
            peaks.append(peak - before - len(frame))
            if peaks[-1] <= SMALL_BYTES:
                break
        else:
            too_much.append(f"{listening.name} {shape}: {min(peaks)} bytes of {SMALL_BYTES}")

    try:
        with patch("sparklog.protocol.codec.allowance.MAX_REQUEST_MEMORY_BYTES", SMALL_BYTES):
            asyncio.run(scenario())
    finally:
        logging.disable(logging.NOTSET)
    assert too_much == []
