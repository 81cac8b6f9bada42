"""Metadata of all topics, made once for everybody."""

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.metadata.v13.request import MetadataRequest

from sparklog.node.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from sparklog.node.responses.metadata import metadata_response
from sparklog.node.responses.whole_metadata import MAX_ANSWERS, WholeMetadata
from sparklog.protocol.codec.apis import ApiKey, known_versions, response_type
from sparklog.protocol.codec.encoded import EncodedBody
from sparklog.protocol.codec.encoder import encode_to_bytes
from sparklog.protocol.codec.guard import decode_entity
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.codec.versions import downgrade
from tests import builders
from tests.counted_work import counted_calls, counted_turns

LISTENER = "PLAINTEXT"
PARTITIONS = 50
EVERYTHING = MetadataRequest(
    topics=None, allow_auto_topic_creation=True, include_topic_authorized_operations=False
)


def an_image(leader: int = 0, partitions: int = PARTITIONS) -> MetadataImage:
    partition = PartitionRegistration(
        replicas=(0, 1),
        directories=(UUID(int=7), UUID(int=7)),
        isr=(0, 1),
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
    )
    topic = TopicImage("t", UUID(int=1), dict.fromkeys(range(partitions), partition))
    return builders.image([builders.broker(0), builders.broker(1)], [topic], offset=10)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(bounded())


async def ask(
    whole: WholeMetadata, image: MetadataImage, request: Any = EVERYTHING, version: int = 13, **more: Any
) -> bytes:
    answer = whole.answer(image, request, version, **more)
    return (await answer if isinstance(answer, Awaitable) else answer).body


@pytest.mark.parametrize("version", range(known_versions(ApiKey.METADATA).max_version + 1))
def test_answer_is_what_the_response_would_be_in_its_version(version: int) -> None:
    """Clients of all versions must not be able to tell that it was made for somebody else."""
    image = an_image()
    expected = in_one_go(
        metadata_response(
            image, EVERYTHING, LISTENER, cluster_id="c", controller_id=1, request_version=version
        )
    )

    async def scenario() -> None:
        whole = WholeMetadata(LISTENER, cluster_id="c")
        body = await ask(whole, image, version=version, controller_id=1)
        assert body == encode_to_bytes(downgrade(expected, version))

    run(scenario())


def test_answer_that_is_there_is_given_at_once_and_shared() -> None:
    """The second of many clients must cost next to nothing, of the loop and of memory."""

    async def scenario() -> None:
        whole, image = WholeMetadata(LISTENER, cluster_id="c"), an_image()
        first = await ask(whole, image)
        with counted_calls() as calls:
            second = whole.answer(image, EVERYTHING, 13)
        assert isinstance(second, EncodedBody)
        assert second.body is first
        assert calls.value < PARTITIONS

    run(scenario())


def test_clients_that_ask_while_it_is_made_wait_for_the_same_answer() -> None:
    """After an election all clients ask at once."""

    async def scenario() -> None:
        whole, image = WholeMetadata(LISTENER, cluster_id="c"), an_image()
        first, second = await asyncio.gather(ask(whole, image), ask(whole, image))
        assert first is second

    run(scenario())


def test_answer_goes_on_being_made_when_the_first_client_goes() -> None:
    """The others wait for it."""

    async def scenario() -> None:
        whole, image = WholeMetadata(LISTENER, cluster_id="c"), an_image()
        first = asyncio.create_task(ask(whole, image))
        second = asyncio.create_task(ask(whole, image))
        await asyncio.sleep(0)
        first.cancel()
        assert await second
        assert first.cancelled()

    run(scenario())


def test_answer_of_an_image_with_another_leader_is_made_anew() -> None:
    """A client that is told of the old leader asks again and again."""

    async def scenario() -> None:
        whole = WholeMetadata(LISTENER, cluster_id="c")
        assert whole.advertised_leaders(an_image(leader=0), EVERYTHING) == {0}
        older = await ask(whole, an_image(leader=0))
        newer = await ask(whole, an_image(leader=1))
        assert whole.advertised_leaders(an_image(leader=1), EVERYTHING) == {1}
        for body, leader in ((older, 0), (newer, 1)):
            response, _ = decode_entity(response_type(ApiKey.METADATA, 13), memoryview(body), 0)
            assert {partition.leader_id for partition in response.topics[0].partitions} == {leader}

    run(scenario())


def test_answer_stays_while_an_image_changes_neither_topics_nor_brokers() -> None:
    """Producer ids are handed out, features finalized: nothing of that is in it."""

    async def scenario() -> None:
        whole, image = WholeMetadata(LISTENER, cluster_id="c"), an_image()
        first = await ask(whole, image)
        assert await ask(whole, replace(image, offset=11, next_producer_id=1_000)) is first
        assert await ask(whole, replace(image, brokers=dict(image.brokers))) is not first

    run(scenario())


def test_answers_differ_by_what_clients_ask_for() -> None:
    """Bytes that were made for one kind of client must not be sent to another."""

    async def scenario() -> None:
        whole, image = WholeMetadata(LISTENER, cluster_id="c"), an_image()
        with_operations = replace(EVERYTHING, include_topic_authorized_operations=True)
        bodies = [
            await ask(whole, image),
            await ask(whole, image, version=12),
            await ask(whole, image, with_operations),
            await ask(whole, image, controller_id=1),
            await ask(whole, image, just_fenced=(builders.broker(2, fenced=True),)),
        ]
        assert len(set(bodies)) == len(bodies)

    run(scenario())


def test_answers_of_more_kinds_than_are_kept_push_the_oldest_out() -> None:
    """Memory is bounded whatever clients ask for."""

    async def scenario() -> None:
        whole, image = WholeMetadata(LISTENER, cluster_id="c"), an_image()
        first = await ask(whole, image, controller_id=0)
        for controller_id in range(1, MAX_ANSWERS + 1):
            await ask(whole, image, controller_id=controller_id)
        assert await ask(whole, image, controller_id=MAX_ANSWERS) is await ask(
            whole, image, controller_id=MAX_ANSWERS
        )
        again = await ask(whole, image, controller_id=0)
        assert again is not first
        assert again == first

    run(scenario())


def test_answer_of_many_partitions_is_made_in_steps() -> None:
    """Everybody else has his turn meanwhile."""

    async def scenario() -> None:
        whole, image = WholeMetadata(LISTENER, cluster_id="c"), an_image(partitions=5_000)
        with counted_turns() as turns:
            await ask(whole, image)
        assert turns.value >= 3

    run(scenario())
