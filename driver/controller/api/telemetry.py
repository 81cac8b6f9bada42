"""Telemetry at the controller: of brokers, of clients by Envelope, and of clients connected here.

A broker pushes under the incarnation id of its registration. A replaced broker's id is unknown, and a
connection without the application's secret is no broker's. A push in an Envelope is a client's, even with
a broker's id.
"""

from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID, uuid4

from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from sparklog.driver.monitoring.telemetry_intake import Push
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.telemetry.machine.client_instances import Client, ClientInstances, Subscription
from sparklog.node.telemetry.machine.subscriptions import ClientSubscriptions
from sparklog.node.telemetry.requests import MAX_BYTES, TelemetryHandlers
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId

_BROKERS_EACH_SECOND: Final = 10
"""The most pushes of brokers a second: to read one takes the driver's interpreter a few milliseconds."""
_INTERVALS_S: Final = (1, 2, 5, 10, 20)


def subscription_of_brokers(broker_count: int) -> Subscription:
    """Return the subscription of each broker: all metrics once a second, or less often in large clusters.

    A page shows the metrics with their age. Steps are few, since each broker asks again after a change.

    >>> [subscription_of_brokers(count).push_interval_ms for count in (3, 10, 11, 100)]
    [1000, 1000, 2000, 10000]
    """
    fitting = (each for each in _INTERVALS_S if broker_count <= each * _BROKERS_EACH_SECOND)
    return Subscription(("*",), 1_000 * next(fitting, _INTERVALS_S[-1]))


class ControllerTelemetry:
    def __init__(self, image: Callable[[], MetadataImage], take: Callable[[Push], None]) -> None:
        """`image` has the brokers' registrations."""
        self._image = image
        self._take = take
        self._subscriptions = ClientSubscriptions()
        direct = ClientInstances(self._subscription_of, uuid4, max_bytes=MAX_BYTES)
        self.direct = TelemetryHandlers(direct, partial(self._received, is_forwarded=False))
        """For connections to the controller itself."""

    def take_forwarded(self, request: Request) -> Response:
        """Take a forwarded push: the broker knows the client, its subscription and its interval."""
        if len(request.body.metrics) <= MAX_BYTES:
            self._received(request, is_forwarded=True)
        return unthrottled(PushTelemetryResponse, error_code=ErrorCode.none)

    def _subscription_of(self, client_instance_id: UUID, client: Client) -> Subscription:
        if self._broker_of(client_instance_id) is not None:
            return subscription_of_brokers(len(self._image().brokers))
        return self._subscriptions.of(self._image(), client)

    def _broker_of(self, incarnation_id: UUID) -> BrokerId | None:
        for registration in self._image().brokers.values():
            if registration.incarnation_id == incarnation_id:
                return registration.broker_id
        return None

    def _received(self, request: Request, *, is_forwarded: bool) -> None:
        body = request.body
        id_ = body.client_instance_id
        self._take(
            Push(
                None if is_forwarded or request.principal is not CLUSTER_PRINCIPAL else self._broker_of(id_),
                id_,
                request.client_id,
                body.terminating,
                body.compression_type,
                bytes(body.metrics),
                wall_clock_ms(),
            )
        )
