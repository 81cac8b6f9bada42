"""librdkafka's telemetry against the handlers of both APIs: one node, and nothing behind it."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

from confluent_kafka import Producer
from kio.schema.metadata.v13.response import MetadataResponse, MetadataResponseBroker

from sparklog.driver.monitoring.otlp_decoding import decode_client_metrics
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.serving.listener import Listener, Service
from sparklog.node.serving.requests import Api, Request
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.telemetry.machine.client_instances import ClientInstances, Subscription
from sparklog.node.telemetry.requests import MAX_BYTES, TelemetryHandlers
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.versions import downgrade
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.codecs import Codec, decompress
from tests.unit.executor.brokers import until


def test_producer_of_librdkafka_pushes_what_it_is_asked_for_and_once_more_when_it_is_closed() -> None:
    """Clients have it switched on from 2.5 on: what they get of us they must be able to use."""

    async def scenario() -> None:
        pushes: list[Any] = []
        ids: list[UUID] = []

        def new_id() -> UUID:
            ids.append(uuid4())
            return ids[-1]

        wanted = Subscription(("org.apache.kafka.producer.",), 500)
        instances = ClientInstances(lambda *_: wanted, new_id, max_bytes=MAX_BYTES)

        def take(request: Request) -> None:
            body = request.body
            metrics = bytes(decompress(Codec(body.compression_type), bytes(body.metrics), MAX_BYTES))
            pushes.append((body.client_instance_id, body.terminating, decode_client_metrics(metrics, 100)))

        handlers = TelemetryHandlers(instances, take)

        def metadata(request: Request) -> Any:
            node = MetadataResponseBroker(node_id=0, host="127.0.0.1", port=listener.port, rack=None)
            response = unthrottled(
                MetadataResponse,
                brokers=(node,),
                cluster_id="c",
                controller_id=0,
                topics=(),
                error_code=ErrorCode.none,
            )
            return downgrade(response, request.api_version)

        apis = {
            ApiKey.METADATA: metadata,
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: handlers.get_subscriptions,
            ApiKey.PUSH_TELEMETRY: handlers.push,
        }
        listener = await Listener.start(
            "127.0.0.1",
            0,
            Service(apis={key: Api(*CLIENT_VERSIONS[key], handler) for key, handler in apis.items()}),
        )
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{listener.port}"})
        try:
            await until(lambda: len(pushes) >= 2, "two pushes")
            # Closed before it has heard of a push, it makes no last one.
            await asyncio.to_thread(producer.list_topics, timeout=25)
            closing = asyncio.ensure_future(asyncio.to_thread(producer.close))
            await until(lambda: any(is_last for _, is_last, _ in pushes), "the last push")
            await closing
        finally:
            await listener.close()
        assert {id_ for id_, _, _ in pushes} == set(ids)
        assert len(ids) == 1
        names = {name.type for _, _, figures in pushes for name in figures}
        assert "org.apache.kafka.producer.connection.creation.total" in names
        assert all(name.startswith("org.apache.kafka.producer.") for name in names)
        assert all(count == 0 for code, count in errors(listener).items() if code is not ErrorCode.none)

    asyncio.run(scenario())


def errors(listener: Listener) -> dict[ErrorCode, int]:
    """Return the error codes with which pushes were answered."""
    return dict(listener.metrics.of("PushTelemetry").errors)
