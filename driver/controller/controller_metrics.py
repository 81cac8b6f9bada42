"""The controller's metrics of itself and of the cluster: Kafka's KafkaController, read once a second.

All values are kept for other purposes already, so a reading takes no longer with 10,000 partitions.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sparklog.driver.controller.active_controller import ActiveController
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.tables.machine.table_status import TableStatus
from sparklog.driver.controller.tables.table_metrics import table_samples
from sparklog.driver.monitoring.broker_metrics import BrokerMetrics
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.metrics import controller, server
from sparklog.node.metrics.histogram import SECONDS
from sparklog.node.metrics.names import Kind, Metric
from sparklog.node.metrics.registry import MetricRegistry, Sample
from sparklog.node.serving.listener import Listener
from sparklog.node.serving.request_metrics import RequestMetrics
from sparklog.node.telemetry.process_metrics import ProcessMetrics
from sparklog.protocol.types import Offset

INTERVAL_MS: Final = 1_000

logger = logging.getLogger(__name__)


class ControllerMetrics:
    """The instruments of the controller; belongs to its loop."""

    def __init__(self, descriptors: DescriptorBudget, kept: BrokerMetrics) -> None:
        """Store readings in `kept`, under the controller's node id."""
        self.requests = RequestMetrics()
        self._registry = MetricRegistry()
        self._kept = kept
        self._active_controller: Callable[[], ActiveController | None] = lambda: None
        self._queue_time = self._registry.histogram(controller.EVENT_QUEUE_TIME, SECONDS, 1000.0)
        self._due_ms: int | None = None
        self._committed_offset: Offset | None = None
        self._committed_ms = 0
        """When the committed image was last seen to change, by `tick`."""
        self._metadata_errors = 0
        """Failures of the metadata that ended this driver's lead."""
        self._failed = False
        """Whether a failed reading was logged."""
        self._registry.add_source(self.requests.samples)
        self._registry.add_source(self._samples)
        self._registry.add_source(ProcessMetrics(descriptors).samples)
        started_at_ms = wall_clock_ms()
        self._registry.gauge(server.START_TIME, lambda: started_at_ms)

    def watch(
        self,
        listeners: Iterable[Listener],
        active_controller: Callable[[], ActiveController | None],
        tables: Callable[[], Iterable[TableStatus]] = tuple,
    ) -> None:
        """Read these listeners, the active controller while this driver leads, and the tables of topics."""
        self._registry.add_source(lambda now_ms: table_samples(tables(), now_ms))
        for listener in listeners:
            self._registry.add_source(listener.samples)
        self._active_controller = active_controller

    def tick(self, late_s: float) -> None:
        """Take a reading, once a second; `late_s` is the delay of this call.

        Any failure costs this reading only, and never the loop that calls this.
        """
        self._queue_time.record(late_s)
        now_ms = monotonic_ms()
        try:
            self._read(now_ms)
        except Exception:  # the cluster would have no controller for lack of a metric
            if not self._failed:
                logger.exception("The controller's metrics cannot be read; retrying every second")
            self._failed = True

    def end(self, *, metadata_failed: bool) -> None:
        """Note that this driver's lead has ended, by an error of the metadata or not; take a last reading."""
        self._metadata_errors += metadata_failed
        self._metadata_errors += self._snapshot_errors()
        self._active_controller = lambda: None
        self._due_ms = None
        self.tick(0.0)

    def _snapshot_errors(self) -> int:
        active = self._active_controller()
        return 0 if active is None else active.snapshot_errors

    def _read(self, now_ms: int) -> None:
        active = self._active_controller()
        if active is not None and self._committed_offset != active.quorum.high_watermark:
            self._committed_offset, self._committed_ms = active.quorum.high_watermark, now_ms
        if self._due_ms is None or now_ms >= self._due_ms:
            self._due_ms = now_ms + INTERVAL_MS
            self._kept.received(CONTROLLER_ID, self._registry.snapshot(now_ms), wall_clock_ms())

    def _samples(self, now_ms: int) -> Iterator[Sample]:
        active = self._active_controller()
        yield Sample(controller.ACTIVE_CONTROLLERS.of(), Kind.GAUGE, int(active is not None))
        errors = self._metadata_errors + self._snapshot_errors()
        yield Sample(controller.METADATA_ERRORS.of(), Kind.GAUGE, errors)
        if active is None:
            return
        image, index, quorum = active.image, active.controller.topic_index, active.quorum
        fenced = sum(broker.fenced for broker in image.brokers.values())
        leaderless = len(index.leaderless)
        gauges: dict[Metric, float | None] = {
            controller.ACTIVE_BROKERS: len(image.brokers) - fenced,
            controller.FENCED_BROKERS: fenced,
            controller.GLOBAL_TOPICS: len(image.topics.by_id),
            controller.GLOBAL_PARTITIONS: sum(index.leading.values()) + leaderless,
            controller.OFFLINE_PARTITIONS: leaderless,
            controller.PREFERRED_REPLICA_IMBALANCE: len(index.led_by_another),
            controller.LAST_APPLIED_OFFSET: active.controller.image.offset,
            controller.LAST_COMMITTED_OFFSET: image.offset,
            controller.LAST_APPLIED_LAG: (
                now_ms - self._committed_ms if quorum.high_watermark < active.log_end_offset else 0
            ),
            controller.NEW_ACTIVE_CONTROLLERS: image.leader_epoch,
            server.RAFT_EPOCH: image.leader_epoch,
            server.RAFT_LEADER: CONTROLLER_ID,
            server.RAFT_HIGH_WATERMARK: quorum.high_watermark,
            server.RAFT_LOG_END_OFFSET: active.log_end_offset,
            server.RAFT_VOTERS: len(quorum.voters.keys),
        }
        for metric, value in gauges.items():
            if value is not None:
                yield Sample(metric.of(), Kind.GAUGE, value)
