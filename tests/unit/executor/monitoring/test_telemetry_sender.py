"""When a broker's figures are pushed."""

import asyncio
import itertools
import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from sparklog.executor.monitoring.telemetry_sender import TelemetrySender
from sparklog.node.clocks import monotonic_ms
from sparklog.node.metrics.registry import Sample
from sparklog.node.serving.requests import Request
from sparklog.node.telemetry.machine.client_instances import ClientInstances, Subscription
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.executor.brokers import until
from tests.unit.executor.controller_script import linked_controller

INTERVAL_MS = 300


def test_push_after_one_that_was_late_is_not_sooner_than_the_controller_lets_it() -> None:
    """On a slow machine every other push was refused by quota, and with it the question for the interval."""

    async def scenario() -> None:
        id_ = uuid4()
        instances = ClientInstances(lambda *_: Subscription(("*",), INTERVAL_MS), uuid4, max_bytes=1 << 20)
        outcomes: list[ErrorCode] = []

        def asked(_: Request) -> GetTelemetrySubscriptionsResponse:
            subscribed = instances.asked(id_, {}, monotonic_ms())
            return GetTelemetrySubscriptionsResponse(
                throttle_time=timedelta(),
                error_code=ErrorCode.none,
                client_instance_id=id_,
                subscription_id=subscribed.subscription_id,
                accepted_compression_types=(3,),
                push_interval=timedelta(milliseconds=INTERVAL_MS),
                telemetry_max_bytes=1 << 20,
                delta_temporality=False,
                requested_metrics=("*",),
            )

        def pushed(request: Request) -> PushTelemetryResponse:
            body = request.body
            outcome = ErrorCode.none
            try:
                instances.pushed(
                    id_, {}, body.subscription_id, 3, len(body.metrics), monotonic_ms(), is_terminating=False
                )
            except KafkaError as error:
                outcome = error.error_code
            outcomes.append(outcome)
            return PushTelemetryResponse(throttle_time=timedelta(), error_code=outcome)

        def read(_: int) -> Iterator[list[Sample]]:
            if not outcomes:
                time.sleep(INTERVAL_MS / 2 / 1000)  # what else a slow machine had to do
            yield []

        script = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: asked, ApiKey.PUSH_TELEMETRY: pushed}
        async with linked_controller(script) as (_, link):
            activity = itertools.count().__next__
            sender = TelemetrySender(link.sibling("broker-1", "metrics"), lambda: id_, read, activity)
            running = asyncio.ensure_future(sender.run())
            await until(lambda: len(outcomes) == 3, "three pushes")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert outcomes == [ErrorCode.none] * 3

    asyncio.run(scenario())
