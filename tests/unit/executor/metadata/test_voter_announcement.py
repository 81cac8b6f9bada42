"""How a broker makes itself known to the driver, over a real socket."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse

from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.senders import BrokerRequests, ProducerIdBlocks
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.executor.metadata.voter_announcement import VoterAnnouncement
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.serving.requests import Request
from sparklog.node.storage import ForeignDirectoryError
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.executor.controller_script import scripted_controller

OURS = VoterKey(2, UUID(int=500))
ENDPOINT = Endpoint("CONTROLLER", "127.0.0.1", 4711)


class Scene:
    """A broker that announces itself, and what the driver hears."""

    def __init__(self, directory: Path) -> None:
        self.announced: list[Any] = []
        self.peers: list[str] = []
        self.error_code = ErrorCode.none
        self.replica = MetadataReplica.open(
            directory,
            BrokerConfig.from_mapping({}),
            key=OURS,
            cluster_id=None,
            fetch_timeout_ms=2_000,
            format_directories=lambda _: None,
            now_ms=0,
        )

    def answer(self, request: Request) -> AddRaftVoterResponse:
        """Take note of the announcement."""
        self.announced.append(request.body)
        self.peers.append(request.connection.peer)
        return AddRaftVoterResponse(
            throttle_time=timedelta(), error_code=self.error_code, error_message="these are another cluster's"
        )

    async def has_announced(self, count: int) -> None:
        """Return when the broker has announced itself that often."""
        async with asyncio.timeout(10):
            while len(self.announced) < count:  # noqa: ASYNC110 - the broker runs by itself
                await asyncio.sleep(0.005)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def run(scene: Scene, scenario: Callable[["asyncio.Task[None]"], Awaitable[None]]) -> None:
    async def main() -> None:
        async with scripted_controller({ApiKey.ADD_RAFT_VOTER: scene.answer}) as listener:
            link = ControllerLink("127.0.0.1", listener.port, "broker-2")
            announcement = VoterAnnouncement(scene.replica, link, ENDPOINT, 2_000, monotonic_ms)
            announcing = asyncio.create_task(announcement.run())
            linked = asyncio.create_task(link.run())
            try:
                await scenario(announcing)
            finally:
                announcing.cancel()
                linked.cancel()
                await asyncio.gather(announcing, linked, return_exceptions=True)

    asyncio.run(main())


def test_announcement_says_which_directory_this_is_and_where_it_is_reached(scene: Scene) -> None:
    """The driver has an empty disk: that is how it learns what there is."""

    async def scenario(_: Any) -> None:
        await scene.has_announced(1)
        first = scene.announced[0]
        assert (first.cluster_id, first.voter_id, first.voter_directory_id) == (None, *OURS)
        (listener,) = first.listeners
        assert (listener.name, listener.host, listener.port) == (ENDPOINT.name, ENDPOINT.host, ENDPOINT.port)

    run(scene, scenario)


def test_announcement_is_repeated_until_a_leader_is_heard_from(scene: Scene) -> None:
    """A driver that could not reach the broker back must hear of it again."""

    async def scenario(_: Any) -> None:
        await scene.has_announced(2)
        assert len(set(scene.peers)) == 1

    run(scene, scenario)


def test_announcement_comes_before_requests_at_which_a_controller_that_does_not_lead_hangs_up(
    scene: Scene,
) -> None:
    """A leader that waits with ISR proposals sent these first, again and again.

    The controller, started again, waited for its voters for minutes: each connection ended at a proposal.
    """

    def hang_up(request: Request) -> Any:
        raise KafkaError(ErrorCode.not_controller, "it does not lead")

    async def propose(link: ControllerLink) -> None:
        blocks = ProducerIdBlocks(BrokerRequests(link, 1, lambda: 1))
        while True:
            with contextlib.suppress(KafkaError):
                await blocks.next(10_000)
            await asyncio.sleep(0)  # a connection that has just ended fails requests at once

    async def main() -> None:
        script = {ApiKey.ADD_RAFT_VOTER: scene.answer, ApiKey.ALLOCATE_PRODUCER_IDS: hang_up}
        async with scripted_controller(script) as listener:
            link = ControllerLink("127.0.0.1", listener.port, "broker-2")
            proposals = [asyncio.create_task(propose(link)) for _ in range(3)]
            await asyncio.sleep(0)  # they wait for the connection before the announcement does
            announcement = VoterAnnouncement(scene.replica, link, ENDPOINT, 2_000, monotonic_ms)
            tasks = [*proposals, asyncio.create_task(announcement.run()), asyncio.create_task(link.run())]
            try:
                await scene.has_announced(3)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_announcement_of_another_cluster_ends_the_broker_with_the_drivers_words(scene: Scene) -> None:
    """Its records are not the driver's; the message is all that an operator has."""
    scene.error_code = ErrorCode.inconsistent_cluster_id

    async def scenario(announcing: "asyncio.Task[None]") -> None:
        with pytest.raises(ForeignDirectoryError, match="another cluster's"):
            await asyncio.wait_for(announcing, 10)

    run(scene, scenario)
