"""What one request may cost: memory and work a turn, for every API and version of every listener.

Work is counted in calls of functions, and memory by the allocator; nothing is timed.
"""

import asyncio
import logging
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from sparklog.node.apis.table import ROWS
from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type
from sparklog.protocol.codec.guard import TooManyItemsError, check_entity, decode_entity
from tests.amplification.cluster import Listening, Target, attacked_cluster
from tests.amplification.measures import counted_steps, decoded_memory_bytes, exchange
from tests.amplification.shapes import Contents, Known, Shape, encoded, frame_of, shapes_of
from tests.forked_process import in_forked_process

FEW, MANY = 160, 320
FEW_IN_MEMORY, MANY_IN_MEMORY = 20, 40
CALLS_AN_ITEM = 6.0
"""What a step may do more for each item of its request: some are converted or looked through in one go."""
TRIES = 3
"""Of a step that seems to have done more: the loops have other work, too."""
ROUNDED_BYTES = 1
UNANSWERED = {("CONTROLLER", ApiKey.LIST_OFFSETS)}
"""Those who vote are asked this by nobody who has not authenticated."""
ATTACKED_AT_LEAST = {"what exists": 80, "everything": 130}
"""Shapes, of all listeners; of 160."""
KNOWN = Known("t", UUID(int=1))


def attacks(listening: Listening, chosen: str) -> Iterator[Shape]:
    """Yield what differs or exists, or the latter alone, of the newest version of each API.

    What may not have many items is refused before it is read. What brokers forward to the controller is not
    sent to it as well: its steps are counted, too.
    """
    for api_key, versions in listening.versions.items():
        if api_key not in listening.many or (listening.name == "controller" and ROWS[api_key].forwarded):
            continue
        sent = set()
        for shape in shapes_of(api_key, versions):
            exists = shape.contents is Contents.KNOWN or api_key is ApiKey.DELETE_TOPICS
            is_chosen = shape.contents is not Contents.EMPTY and (exists or chosen == "everything")
            if shape.path and shape.version == versions.max_version and is_chosen:
                # Most items have nothing in them that could exist.
                body = encoded(shape, 2, KNOWN)
                if body not in sent:
                    sent.add(body)
                    yield shape


def shapes_that_differ(chosen: str) -> Iterator[Shape]:
    """Yield what differs, of every API, of its newest version or of all."""
    for api_key in ApiKey:
        versions = known_versions(api_key)
        for shape in shapes_of(api_key, versions):
            differs = shape.contents is Contents.DISTINCT or not shape.path
            if differs and (chosen == "all versions" or shape.version == versions.max_version):
                yield shape


@pytest.mark.timeout(120)
@pytest.mark.parametrize("chosen", ["what exists", pytest.param("everything", marks=pytest.mark.long)])
def test_requests_of_many_items_are_handled_in_steps_that_do_not_grow_with_them(
    tmp_path: Path, chosen: str
) -> None:
    """While one step lasts nobody else is answered, and no lease is renewed."""
    logging.disable(logging.WARNING)
    too_long: list[str] = []
    unanswered: set[tuple[str, ApiKey]] = set()
    attacked = 0

    async def growth(target: Target, listening: Listening, shape: Shape) -> float:
        calls = []
        for count in (FEW, MANY):
            frame = frame_of(shape, count, target.known)
            await asyncio.sleep(0)  # making the frame was work of this loop, too
            longest.restart()
            answer = await exchange(listening.port, frame)
            if not answer.received_bytes:
                unanswered.add((listening.name, shape.api_key))
            calls.append(longest.calls)
        return (calls[1] - calls[0]) / (MANY - FEW)

    async def scenario() -> None:
        nonlocal attacked
        async with asyncio.timeout(110), attacked_cluster(tmp_path) as target:
            for listening in target.listeners:
                for shape in attacks(listening, chosen):
                    attacked += 1
                    for _ in range(TRIES):
                        found = await growth(target, listening, shape)
                        if found <= CALLS_AN_ITEM:
                            break
                    else:
                        too_long.append(f"{listening.name} {shape}: {found:.1f} calls an item")

    try:
        with counted_steps() as longest:
            asyncio.run(scenario())
    finally:
        logging.disable(logging.NOTSET)
    assert too_long == []
    # What is closed or refused takes no step at all.
    assert unanswered == UNANSWERED
    assert attacked >= ATTACKED_AT_LEAST[chosen]


VERSIONS = ["newest versions", pytest.param("all versions", marks=pytest.mark.long)]
"""A field or an API that is added is in the newest version."""


class Bodies(NamedTuple):
    """A request of a shape with few items, and one with many."""

    shape: Shape
    few: bytes
    many: bytes

    def memory_an_item(self) -> float:
        """Return how many bytes one item more takes as objects."""
        entity_type = request_type(self.shape.api_key, self.shape.version)
        few, many = (decoded_memory_bytes(entity_type, body) for body in (self.few, self.many))
        return (many - few) / (MANY_IN_MEMORY - FEW_IN_MEMORY)


@pytest.mark.parametrize("chosen", VERSIONS)
@in_forked_process
def test_items_of_every_shape_take_no_more_memory_than_they_are_counted_for(chosen: str) -> None:
    """The bound on what a request takes is worth what the count is."""
    understated = []
    # Schemas are loaded before allocations are traced, which makes it five times as slow.
    measured = [
        Bodies(shape, *(encoded(shape, count, KNOWN) for count in (FEW_IN_MEMORY, MANY_IN_MEMORY)))
        for shape in shapes_that_differ(chosen)
        if shape.path
    ]
    for shape, few, _ in measured:
        decode_entity(request_type(shape.api_key, shape.version), few)
    tracemalloc.start()
    try:
        for bodies in measured:
            shape = bodies.shape
            allowed = shape.item_memory_bytes() + ROUNDED_BYTES
            for _ in range(TRIES):  # other threads of this process allocate when they please
                taken = bodies.memory_an_item()
                if taken <= allowed:
                    break
            else:
                understated.append(f"{shape}: {taken:.0f} bytes, counted {shape.item_memory_bytes()}")
    finally:
        tracemalloc.stop()
    assert understated == []


@pytest.mark.parametrize("chosen", VERSIONS)
def test_request_of_every_shape_is_refused_when_its_items_exceed_the_allowance(chosen: str) -> None:
    """An array that is not counted would be a way around the bound."""
    allowance_bytes = 100_000
    for shape in shapes_that_differ(chosen):
        entity_type = request_type(shape.api_key, shape.version)
        count = allowance_bytes // shape.item_memory_bytes()
        with pytest.raises(TooManyItemsError):
            check_entity(entity_type, encoded(shape, count + 1, KNOWN), 0, allowance_bytes)
        check_entity(entity_type, encoded(shape, count // 2, KNOWN), 0, allowance_bytes)
