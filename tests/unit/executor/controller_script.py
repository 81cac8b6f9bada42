"""A controller that answers what a test tells it to, over a real listener."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse
from kio.schema.begin_quorum_epoch.v1.request import BeginQuorumEpochRequest, PartitionData, TopicData

from sparklog.executor.control.controller_link import ControllerLink
from sparklog.node.calling.channel import Channel
from sparklog.node.serving.listener import Listener, ListenerIdentity, Service
from sparklog.node.serving.requests import Api, Request
from sparklog.node.serving.turns import in_task
from sparklog.protocol.codec.apis import ApiKey, known_versions
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC
from tests.application_secret import CLUSTER_ADMISSION, SECRET

Script = Mapping[ApiKey, Callable[[Request], Any]]


async def lead_whoever_announces_itself(request: Request) -> AddRaftVoterResponse:
    """Answer a broker that announces itself by leading the broker in epoch 1 of cluster `c`."""
    return await in_task(_led(request))


async def _led(request: Request) -> AddRaftVoterResponse:
    (listener,) = request.body.listeners
    partition = PartitionData(
        partition_index=0,
        voter_directory_id=request.body.voter_directory_id,
        leader_id=1_000_000,
        leader_epoch=1,
    )
    topic = TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(partition,))
    channel = await Channel.connect(listener.host, listener.port, "script", login=SECRET.login)
    response = await channel.request(
        BeginQuorumEpochRequest(
            cluster_id="c", voter_id=request.body.voter_id, topics=(topic,), leader_endpoints=()
        )
    )
    channel.close()
    assert response.topics[0].partitions[0].error_code is ErrorCode.none
    return AddRaftVoterResponse(throttle_time=timedelta(), error_code=ErrorCode.none, error_message=None)


@asynccontextmanager
async def scripted_controller(script: Script, port: int = 0) -> AsyncIterator[Listener]:
    """Serve the script's handlers on loopback."""
    apis = {api_key: Api(*known_versions(api_key), handler) for api_key, handler in script.items()}
    listener = await Listener.start(
        "127.0.0.1", port, Service(apis=apis, admission=CLUSTER_ADMISSION), ListenerIdentity(name="script")
    )
    try:
        yield listener
    finally:
        await listener.close()


@asynccontextmanager
async def linked_controller(script: Script) -> AsyncIterator[tuple[Listener, ControllerLink]]:
    """Serve the script and keep a link to it."""
    async with scripted_controller(script) as listener:
        link = ControllerLink("127.0.0.1", listener.port, "broker-1")
        running = asyncio.create_task(link.run())
        try:
            yield listener, link
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
