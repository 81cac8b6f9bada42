"""Metadata around the end of a leader: nobody is told of it who could be told of its successor."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, Self
from uuid import UUID

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

from sparklog.executor.api.find_coordinator import FindCoordinatorHandler
from sparklog.executor.api.metadata import MetadataHandler
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.metadata.machine.metadata_loader import difference
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import (
    EMPTY_IMAGE,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    TopicsImage,
)
from sparklog.node.serving.requests import Request
from sparklog.node.serving.turns import CoroutineDriver, FairQueue, is_awaitable
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId

NODE, LEADER, SUCCESSOR = 0, 1, 2
DEADLINE_S: Final = 20
LONG_AGO_MS: Final = -(1 << 40)
NEVER_MS: Final = 1 << 40


def image_led_by(leader: BrokerId, *, fenced: tuple[BrokerId, ...] = ()) -> MetadataImage:
    """Return three brokers and topic `t` with one partition."""
    partition = PartitionRegistration(
        replicas=(LEADER, SUCCESSOR),
        directories=(UUID(int=7), UUID(int=7)),
        isr=(SUCCESSOR,),
        leader=leader,
        leader_epoch=5,
        partition_epoch=7,
    )
    topic = TopicImage("t", UUID(int=100), {0: partition})
    offsets = TopicImage("__consumer_offsets", UUID(int=101), {0: partition})
    return MetadataImage(
        offset=10,
        brokers={
            broker_id: BrokerRegistration(
                broker_id=broker_id,
                broker_epoch=broker_id,
                incarnation_id=None,
                listeners=(Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id),),
                fenced=broker_id in fenced,
            )
            for broker_id in (NODE, LEADER, SUCCESSOR)
        },
        topics=TopicsImage(
            {each.name: each for each in (topic, offsets)}, {each.topic_id: each for each in (topic, offsets)}
        ),
    )


BEFORE: Final = image_led_by(LEADER)
AFTER: Final = image_led_by(SUCCESSOR, fenced=(LEADER,))


class Client:
    """A connection as a handler sees it."""

    peer = "client:1"
    closed = False

    def __init__(self, accepted_ms: int) -> None:
        self.accepted_ms = accepted_ms

    def on_close(self, callback: Callable[[], None]) -> None:
        """Stay open."""


class Node:
    """A broker's part in answering Metadata."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.suspicions = BrokerSuspicions(asyncio.get_running_loop())
        self.handler = MetadataHandler(
            lambda: self.image,
            cluster_id="c",
            node_id=NODE,
            suspicions=self.suspicions,
            auto_topic_creation=None,
        )

    @classmethod
    async def started(cls) -> Self:
        """Return one that knows the beginning."""
        node = cls()
        await node.publish(BEFORE)
        return node

    async def publish(self, image: MetadataImage) -> None:
        """Have it know another image."""
        delta, self.image = difference(self.image, image), image
        await self.suspicions.apply(image, delta)

    def ask_for_coordinator(self, client: Client) -> Any:
        """Return the answer to FindCoordinator for a group, or what becomes the answer."""
        handler = FindCoordinatorHandler(
            lambda: self.image, node_id=NODE, suspicions=self.suspicions, create_topics=lambda topics: None
        )
        body = FindCoordinatorRequest(key_type=0, coordinator_keys=("group",))
        request = Request(ApiKey.FIND_COORDINATOR, 6, 1, "test", body, memoryview(b""), client, "PLAINTEXT")
        return Asked(handler.handle(request)).answer()

    def ask(self, client: Client, *topics: str | UUID, version: int = 13) -> Any:
        """Return the answer, or what becomes the answer."""
        body = MetadataRequest(
            topics=tuple(
                MetadataRequestTopic(topic_id=topic, name=None)
                if isinstance(topic, UUID)
                else MetadataRequestTopic(topic_id=None, name=topic)
                for topic in topics
            ),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        request = Request(ApiKey.METADATA, version, 1, "test", body, memoryview(b""), client, "PLAINTEXT")
        return Asked(self.handler.handle(request)).answer()


class Asked:
    """A request whose coroutine is driven as a listener does it."""

    def __init__(self, coroutine: Awaitable[Any]) -> None:
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        CoroutineDriver(FairQueue(asyncio.get_running_loop()), coroutine, self).go_on(math.inf)

    def answer(self) -> Any:
        """Return the answer, or what becomes the answer."""
        return self._answer.result() if self._answer.done() else self._answer

    def pause(self) -> None:
        """It is not measured."""

    resume = hold = let_go = pause

    def finished(self, result: Any) -> Awaitable[Any] | None:
        """Take the answer, or have awaited what leads to it."""
        if is_awaitable(result):
            return result  # type: ignore[no-any-return]
        self._answer.set_result(result)
        return None

    def failed(self, error: BaseException) -> None:
        """Take the error."""
        self._answer.set_exception(error)


def leader_in(response: Any) -> BrokerId:
    leader: BrokerId = response.topics[0].partitions[0].leader_id
    return leader


def brokers_in(response: Any) -> list[BrokerId]:
    return [broker.node_id for broker in response.brokers]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await scenario

    asyncio.run(bounded())


def test_metadata_naming_a_lost_leader_waits_for_the_image_that_names_another() -> None:
    """A client that is told the dead leader once more may not ask again for a second."""

    async def scenario() -> None:
        node = await Node.started()
        node.suspicions.connection_lost(LEADER)
        answers = [node.ask(Client(accepted_ms), "t") for accepted_ms in (LONG_AGO_MS, NEVER_MS)]
        unrelated = replace(BEFORE, offset=11)
        await node.publish(unrelated)
        done, _ = await asyncio.wait(answers, timeout=0.05)
        assert not done
        await node.publish(AFTER)
        for answer in answers:
            assert leader_in(await answer) == SUCCESSOR

    run(scenario())


def test_metadata_asked_amid_work_waits_for_the_loss_to_be_noticed() -> None:
    """The client's connection to the dead leader may break a moment before this broker's does."""

    async def scenario() -> None:
        node = await Node.started()
        answer = node.ask(Client(LONG_AGO_MS), "t")
        node.suspicions.connection_lost(LEADER)
        done, _ = await asyncio.wait([answer], timeout=0.05)
        assert not done
        await node.publish(AFTER)
        assert leader_in(await answer) == SUCCESSOR

    run(scenario())


def test_metadata_of_a_leader_that_serves_again_is_answered() -> None:
    """A broken connection is not a dead broker."""

    async def scenario() -> None:
        node = await Node.started()
        node.suspicions.connection_lost(LEADER)
        answer = node.ask(Client(LONG_AGO_MS), "t")
        node.suspicions.connection_serves(LEADER)
        assert leader_in(await answer) == LEADER

    run(scenario())


def test_metadata_of_a_leader_of_which_nothing_is_heard_is_answered_after_a_while() -> None:
    """If the controller does not come round to it, the old leader is the best there is to tell."""

    async def scenario() -> None:
        node = await Node.started()
        node.suspicions.connection_lost(LEADER)
        assert leader_in(await node.ask(Client(LONG_AGO_MS), "t")) == LEADER

    run(scenario())


def test_metadata_without_doubt_is_answered_at_once() -> None:
    """Who has just connected, or asks for no leader, or for nobody else's, waits for nothing."""

    async def scenario() -> None:
        node = await Node.started()
        just_now = Client(node.suspicions.now_ms())
        assert leader_in(node.ask(just_now, "t")) == LEADER
        assert brokers_in(node.ask(Client(LONG_AGO_MS))) == [NODE, LEADER, SUCCESSOR]
        await node.publish(image_led_by(NODE))
        assert leader_in(node.ask(Client(LONG_AGO_MS), "t")) == NODE

    run(scenario())


def test_metadata_that_moves_a_partition_still_lists_its_former_leader_once() -> None:
    """librdkafka loses the partition, too, if the broker goes in the same answer; later it shall go."""

    async def scenario() -> None:
        node = await Node.started()
        await node.publish(AFTER)
        client = Client(LONG_AGO_MS)
        first, second = await node.ask(client, "t"), await node.ask(client, "t")
        assert (leader_in(first), brokers_in(first)) == (SUCCESSOR, [NODE, LEADER, SUCCESSOR])
        assert (leader_in(second), brokers_in(second)) == (SUCCESSOR, [NODE, SUCCESSOR])

    run(scenario())


def test_metadata_while_nobody_is_live_waits_for_somebody_who_can_be_the_controller() -> None:
    """librdkafka's admin client, told once that there is no controller, never asks again."""

    async def scenario() -> None:
        node = await Node.started()
        await node.publish(image_led_by(LEADER, fenced=(NODE, LEADER, SUCCESSOR)))
        answer = node.ask(Client(node.suspicions.now_ms()), "t")
        done, _ = await asyncio.wait([answer], timeout=0.05)
        assert not done
        await node.publish(image_led_by(LEADER, fenced=(NODE, LEADER)))
        assert (await answer).controller_id == SUCCESSOR
        await node.publish(BEFORE)
        assert node.ask(Client(node.suspicions.now_ms()), "t").controller_id == NODE

    run(scenario())


def test_coordinator_that_is_lost_is_not_named_again_before_the_image_names_another() -> None:
    """A client that is told the dead one once more asks again after a second."""

    async def scenario() -> None:
        node = await Node.started()
        answers = [node.ask_for_coordinator(Client(LONG_AGO_MS))]
        node.suspicions.connection_lost(LEADER)
        answers.append(node.ask_for_coordinator(Client(NEVER_MS)))
        done, _ = await asyncio.wait(answers, timeout=0.05)
        assert not done
        await node.publish(AFTER)
        for answer in answers:
            assert (await answer).coordinators[0].node_id == SUCCESSOR

    run(scenario())


def test_coordinator_without_doubt_is_named_at_once() -> None:
    """Who has just connected waits for nothing."""

    async def scenario() -> None:
        node = await Node.started()
        just_now = Client(node.suspicions.now_ms())
        assert node.ask_for_coordinator(just_now).coordinators[0].node_id == LEADER

    run(scenario())


def test_metadata_by_id_before_it_may_is_refused_before_anything_is_looked_up() -> None:
    """The versions that have the field and no place for the answer; brokers that are all fenced, too."""

    async def scenario() -> None:
        node = Node()
        refused = node.ask(Client(LONG_AGO_MS), UUID(int=100), version=11)
        assert [(topic.name, topic.error_code) for topic in refused.topics] == [
            ("", ErrorCode.invalid_request)
        ]

    run(scenario())
