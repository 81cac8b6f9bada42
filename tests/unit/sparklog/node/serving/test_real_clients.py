"""Unmodified clients find the listener to be a Kafka broker."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from sparklog.node.serving.listener import Listener
from sparklog.node.serving.requests import Api, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.versions import upgrade
from sparklog.protocol.errors import ErrorCode
from tests.unit.sparklog.node.serving.serving import run, serving


def metadata_of(listener: Listener) -> Any:
    """Return a handler that tells of one broker and one topic."""
    topic = MetadataResponseTopic(
        error_code=ErrorCode.none,
        name="flights",
        topic_id=UUID(int=5),
        partitions=(
            MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=0,
                leader_id=1,
                replica_nodes=(1,),
                isr_nodes=(1,),
            ),
        ),
    )

    def handler(request: Request) -> Any:
        wanted = upgrade(request.body).topics
        return MetadataResponse(
            throttle_time=timedelta(0),
            brokers=(MetadataResponseBroker(node_id=1, host="127.0.0.1", port=listener.port),),
            cluster_id="test-cluster",
            controller_id=1,
            topics=(topic,) if wanted is None or wanted else (),
            error_code=ErrorCode.none,
        )

    return handler


async def describe(use: Any) -> Any:
    """Serve metadata and call `use(port)` on another thread."""
    handlers: list[Any] = []

    def handler(request: Request) -> Any:
        return handlers[0](request)

    async with serving({ApiKey.METADATA: Api(0, 13, handler)}) as listener:
        handlers.append(metadata_of(listener))
        return await asyncio.to_thread(use, listener.port)


def test_librdkafka_negotiates_and_reads_metadata() -> None:
    """ApiVersions v3 and up with header v2, response header v0, then flexible Metadata."""

    def use(port: int) -> Any:
        return AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=10)

    metadata = run(describe(use))
    assert metadata.cluster_id == "test-cluster"
    assert list(metadata.topics) == ["flights"]
    assert [(broker.id, broker.host) for broker in metadata.brokers.values()] == [(1, "127.0.0.1")]


def test_kafka_python_negotiates_and_reads_metadata() -> None:
    """A second, independent reading of the protocol."""

    def use(port: int) -> Any:
        client = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
        try:
            return client.list_topics()
        finally:
            client.close()

    assert "flights" in str(run(describe(use)))
