"""The push of this broker's metrics to the driver: PushTelemetry (KIP-714) on a connection of its own.

The controller says how often (GetTelemetrySubscriptions) and knows the broker by the incarnation id that it
has registered under. Nothing here waits for anything that matters: heartbeats and metadata have connections
of their own, and what is not answered in time, or cannot be sent, is a sample less. A controller that does
not know the subscription, because another driver leads, is asked for a new one.

Reading and encoding all metrics is most of what an idle broker would do, so it leaves most pushes out
(`machine/quiet_pushes.py`). The samples would be the same, but for those of the process and of its disks; of
these the driver bears the same age in large clusters.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest

from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.forwarding import envelope
from sparklog.executor.monitoring.machine.quiet_pushes import QuietPushes
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.loop.whole_seconds import whole_second_after
from sparklog.node.metrics.registry import Sample
from sparklog.node.serving.requests import Request
from sparklog.node.telemetry.otlp import MetricsEncoder
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.codecs import Codec, compress

TIMEOUT_MS: Final = 10_000
RETRY_S: Final = 1.0
FIRST_PUSH: Final = (0.5, 1.5)
"""When the first push is due at the earliest and at the latest, in intervals."""
SOONEST_NEXT_PUSH: Final = 0.95
"""In intervals since the last push was answered; the controller refuses one after less than 0.9."""
FORWARDED_AT_ONCE: Final = 16
"""The most pushes of clients on their way to the driver; further ones are dropped."""

logger = logging.getLogger(__name__)


class TelemetrySender:
    """The sender of the samples that `read` returns."""

    def __init__(
        self,
        link: ControllerLink,
        incarnation_id: Callable[[], UUID | None],
        read: Callable[[int], Iterable[Sequence[Sample]]],
        activity: Callable[[], Hashable],
    ) -> None:
        """`incarnation_id` is None as long as the broker has not registered; `read` returns parts.

        `activity` returns another value whenever the broker has done something for clients or for other
        brokers; it is called every interval.
        """
        self._link = link
        self._incarnation_id = incarnation_id
        self._read = read
        self._activity = activity
        self._encoder = MetricsEncoder(wall_clock_ms())
        self._forwarding: set[asyncio.Task[Any]] = set()
        self._logged_error: ErrorCode = ErrorCode.none

    async def run(self) -> None:
        """Connect and push, until cancelled."""
        connecting = asyncio.ensure_future(self._link.run())
        try:
            while True:
                try:
                    await self._push_until_refused()
                except KafkaError as error:
                    self._note(error.error_code, error.message)
                await asyncio.sleep(RETRY_S)
        finally:
            for task in (connecting, *self._forwarding):
                task.cancel()
            await asyncio.gather(connecting, *self._forwarding, return_exceptions=True)

    def forward(self, request: Request) -> None:
        """Pass a client's push on; drop it if too many wait."""
        if len(self._forwarding) >= FORWARDED_AT_ONCE or not self._link.is_connected:
            return
        task = asyncio.ensure_future(self._link.request(envelope(request), TIMEOUT_MS))
        self._forwarding.add(task)
        task.add_done_callback(self._forwarded)

    def _forwarded(self, task: "asyncio.Task[Any]") -> None:
        self._forwarding.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("A client's telemetry did not reach the driver: %s", error)

    async def _push_until_refused(self) -> None:
        """Get the subscription, and push its metrics.

        Raises:
            KafkaError: the controller cannot be reached, or refuses.
        """
        incarnation_id = self._incarnation_id()
        if incarnation_id is None:
            return
        subscribed = await self._link.request(
            GetTelemetrySubscriptionsRequest(client_instance_id=incarnation_id), TIMEOUT_MS
        )
        if subscribed.error_code is not ErrorCode.none:
            raise KafkaError(subscribed.error_code, "the controller does not say what metrics it wants")
        if not subscribed.requested_metrics:
            return
        interval_s = subscribed.push_interval.total_seconds()
        loop = asyncio.get_running_loop()
        # As in KIP-714: brokers that began together would all be busy with it at the same time.
        due_s = loop.time() + random.uniform(*FIRST_PUSH) * interval_s
        pushes = QuietPushes()
        while True:
            await asyncio.sleep(due_s - loop.time())
            if not pushes.is_due(self._activity(), loop.time()):
                # Later than the interval after a push, in a second of this broker's other periodic work.
                due_s = whole_second_after(due_s + interval_s)
                continue
            metrics = await self._metrics(subscribed.telemetry_max_bytes)
            pushed = await self._link.request(
                PushTelemetryRequest(
                    client_instance_id=incarnation_id,
                    subscription_id=subscribed.subscription_id,
                    terminating=False,
                    compression_type=int(Codec.LZ4),
                    metrics=metrics,
                ),
                TIMEOUT_MS,
            )
            if pushed.error_code is not ErrorCode.none:
                raise KafkaError(pushed.error_code, "the controller does not take metrics")
            self._logged_error = ErrorCode.none
            # Not later and later by the time that a push takes, and after one that was long on its way not
            # sooner than the controller, which counts from its arrival, lets it.
            due_s = max(due_s + interval_s, loop.time() + SOONEST_NEXT_PUSH * interval_s)

    async def _metrics(self, max_bytes: int) -> bytes:
        samples: list[Sample] = []
        for part in self._read(monotonic_ms()):
            samples += part
            await asyncio.sleep(0)
        while True:
            metrics = compress(Codec.LZ4, self._encoder.encode(samples, wall_clock_ms()))
            if len(metrics) <= max_bytes or not samples:
                return metrics
            samples = samples[: len(samples) // 2]  # never so far: what there may be many of is bounded

    def _note(self, error_code: ErrorCode, message: str) -> None:
        """Log why metrics are not sent: the first of each cause, since it recurs every second."""
        if error_code is not self._logged_error:
            self._logged_error = error_code
            logger.info("No metrics to the driver for now: %s: %s", error_code.name, message)
