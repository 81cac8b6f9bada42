"""Telemetry at the controller: brokers' figures, clients' that brokers pass on, and clients' that come here.

A broker pushes under the incarnation id that it has registered with; the next incarnation has another one, so
a replaced broker is nobody any more, and who is not inside the application is no broker. Whatever comes in an
Envelope is a client's, whoever it says to be.
"""

from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID, uuid4

from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from sparklog.driver.monitoring.telemetry_intake import Push
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.security.inside import INSIDE
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.telemetry.machine.client_instances import Client, ClientInstances, Subscription
from sparklog.node.telemetry.machine.subscriptions import ClientSubscriptions
from sparklog.node.telemetry.requests import MAX_BYTES, TelemetryHandlers
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId

BROKERS: Final = Subscription(("*",), 1_000)
"""What brokers are asked for: everything, every second, for that is how often pages show it."""


class ControllerTelemetry:
    """The handlers of both APIs on the controller's listener."""

    def __init__(self, image: Callable[[], MetadataImage], take: Callable[[Push], None]) -> None:
        """`image` has the brokers' registrations."""
        self._image = image
        self._take = take
        self._subscriptions = ClientSubscriptions()
        direct = ClientInstances(self._subscription_of, uuid4, max_bytes=MAX_BYTES)
        self.direct = TelemetryHandlers(direct, partial(self._received, is_forwarded=False))
        """Answers who has connected to the controller."""

    def take_forwarded(self, request: Request) -> Response:
        """Take what a broker passes on: it knows the client, has said what is to be pushed, and how often."""
        if len(request.body.metrics) <= MAX_BYTES:
            self._received(request, is_forwarded=True)
        return unthrottled(PushTelemetryResponse, error_code=ErrorCode.none)

    def _subscription_of(self, client_instance_id: UUID, client: Client) -> Subscription:
        if self._broker_of(client_instance_id) is not None:
            return BROKERS
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
                None if is_forwarded or request.principal is not INSIDE else self._broker_of(id_),
                id_,
                request.client_id,
                body.terminating,
                body.compression_type,
                bytes(body.metrics),
                wall_clock_ms(),
            )
        )
