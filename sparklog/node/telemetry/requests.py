"""GetTelemetrySubscriptions and PushTelemetry (KIP-714), the same on brokers and the controller.

`ClientInstances` decides; accepted pushes go to `received` as they came, compressed.
"""

import datetime
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from sparklog.node.clocks import monotonic_ms
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.storage.files import encode_uuid
from sparklog.node.telemetry.machine.client_instances import Client, ClientInstances, Subscribed, Subscription
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.codecs import Codec

MAX_BYTES: Final = 1 << 20
"""As Kafka's telemetry.max.bytes."""

_ACCEPTED: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The first is preferred."""


class TelemetryHandlers:
    """The handlers of both APIs on one node."""

    def __init__(
        self,
        instances: ClientInstances,
        received: Callable[[Request], None],
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """Pass every accepted PushTelemetry to `received`, which must be quick."""
        self._instances = instances
        self._received = received
        self._now_ms = now_ms

    def get_subscriptions(self, request: Request) -> Response:
        id_: UUID | None = request.body.client_instance_id
        try:
            subscribed = self._instances.asked(id_, _client(request, id_), self._now_ms())
            return _subscribed(subscribed, self._instances.max_bytes)
        except KafkaError as error:
            nothing = Subscribed(id_ or UUID(int=0), 0, Subscription((), 0))
            return _subscribed(nothing, 0, error.error_code)

    def push(self, request: Request) -> Response:
        body = request.body
        try:
            self._instances.pushed(
                body.client_instance_id,
                _client(request, body.client_instance_id),
                body.subscription_id,
                body.compression_type,
                len(body.metrics),
                self._now_ms(),
                is_terminating=body.terminating,
            )
        except KafkaError as error:
            return unthrottled(PushTelemetryResponse, error_code=error.error_code)
        if len(body.metrics):
            self._received(request)
        return unthrottled(PushTelemetryResponse, error_code=ErrorCode.none)


def _client(request: Request, client_instance_id: UUID | None) -> Client:
    """Return the client's attributes under Kafka's names (ClientMetricsConfigs)."""
    connection = request.connection
    address, _, port = connection.peer.rpartition(":")
    software_name, software_version = connection.client_software
    return {
        "client_id": request.client_id or "",
        "client_instance_id": "" if client_instance_id is None else encode_uuid(client_instance_id),
        "client_software_name": software_name,
        "client_software_version": software_version,
        "client_source_address": address.strip("[]"),
        "client_source_port": port,
    }


def _subscribed(subscribed: Subscribed, max_bytes: int, error_code: ErrorCode = ErrorCode.none) -> Any:
    subscription = subscribed.subscription
    return unthrottled(
        GetTelemetrySubscriptionsResponse,
        error_code=error_code,
        client_instance_id=subscribed.client_instance_id,
        subscription_id=subscribed.subscription_id,
        accepted_compression_types=tuple(int(codec) for codec in _ACCEPTED) if max_bytes else (),
        push_interval=datetime.timedelta(milliseconds=subscription.push_interval_ms),
        telemetry_max_bytes=max_bytes,
        delta_temporality=False,
        requested_metrics=subscription.metrics,
    )
