"""The metrics of one broker: its instruments, their registry, and the sender to the driver.

A failure here may cost the broker no more than a metric: it is logged, and tried again.
"""

import asyncio
import logging
from typing import Final
from uuid import uuid4

from sparklog.executor.control.broker_life import BrokerLife
from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.machine.broker_lifecycle import BrokerState
from sparklog.executor.metadata.quorum_member import QuorumMember
from sparklog.executor.monitoring.log_metrics import LogMetrics
from sparklog.executor.monitoring.partition_traffic import PartitionTraffic
from sparklog.executor.monitoring.telemetry_sender import TelemetrySender
from sparklog.executor.replicas import Replicas
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.metrics import server
from sparklog.node.metrics.registry import MetricRegistry
from sparklog.node.serving.listener import Listener
from sparklog.node.serving.request_metrics import RequestMetrics
from sparklog.node.telemetry.machine.client_instances import ClientInstances
from sparklog.node.telemetry.machine.subscriptions import ClientSubscriptions
from sparklog.node.telemetry.process_metrics import ProcessMetrics
from sparklog.node.telemetry.requests import MAX_BYTES, TelemetryHandlers
from sparklog.protocol.types import or_minus_one

RETRY_S: Final = 10.0

_STATES: Final = {
    BrokerState.NOT_RUNNING: 0,
    BrokerState.STARTING: 1,
    BrokerState.RECOVERY: 2,
    BrokerState.RUNNING: 3,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: 6,
    BrokerState.SHUTTING_DOWN: 7,
}
"""Kafka's numbers of them."""

logger = logging.getLogger(__name__)


class BrokerMonitoring:
    """The monitoring of one broker, on its event loop."""

    def __init__(
        self,
        link: ControllerLink,
        life: BrokerLife,
        quorum: QuorumMember,
        replicas: Replicas,
        descriptors: DescriptorBudget,
    ) -> None:
        self.requests = RequestMetrics()
        """The costs of requests on all listeners of the broker."""
        self.registry: MetricRegistry = replicas.metrics
        own_link = link.sibling(link.client_id, "controller, for metrics")

        def activity() -> tuple[object, ...]:
            """Return numbers of which one changes whenever this broker does anything for others."""
            traffic = replicas.traffic
            replicated = traffic.replication_bytes_in, traffic.replication_bytes_out
            return (self.requests.asked_count, *replicated, quorum.image().offset, life.state)

        self._sender = TelemetrySender(own_link, life.incarnation_id, self.registry.read_in_parts, activity)
        subscriptions = ClientSubscriptions()
        instances = ClientInstances(
            lambda id_, client: subscriptions.of(quorum.image(), client), uuid4, max_bytes=MAX_BYTES
        )
        self.telemetry = TelemetryHandlers(instances, self._sender.forward)
        """The metrics that clients push."""
        self._logs = LogMetrics(replicas.table, replicas.store)
        self._traffic = PartitionTraffic(replicas.table)
        registry, started_at_ms = self.registry, wall_clock_ms()
        registry.gauge(server.BROKER_STATE, lambda: _STATES[life.state])
        registry.gauge(server.START_TIME, lambda: started_at_ms)
        registry.gauge(server.CLIENT_INSTANCES, lambda: _count(instances))
        for source in (self.requests, self._logs, self._traffic, ProcessMetrics(descriptors)):
            registry.add_source(source.samples)
        replica = quorum.replica
        registry.gauge(server.RAFT_EPOCH, lambda: replica.voter.leader_epoch)
        registry.gauge(server.RAFT_LEADER, lambda: or_minus_one(replica.voter.election.leader_id))
        registry.gauge(server.RAFT_HIGH_WATERMARK, lambda: replica.voter.high_watermark)
        registry.gauge(server.RAFT_LOG_END_OFFSET, lambda: replica.log.log_end_offset)
        registry.gauge(server.APPLIED_OFFSET, lambda: quorum.image().offset)

    def watch_listener(self, listener: Listener) -> None:
        self.registry.add_source(listener.samples)

    async def run(self) -> None:
        """Read the logs and push metrics to the driver, until cancelled."""
        while True:
            try:
                async with asyncio.TaskGroup() as running:
                    running.create_task(self._logs.run())
                    running.create_task(self._traffic.run())
                    running.create_task(self._sender.run())
            except ExceptionGroup as mistakes:
                logger.error("Metrics fail, and are tried again", exc_info=mistakes)
            await asyncio.sleep(RETRY_S)


def _count(instances: ClientInstances) -> int:
    instances.expire(monotonic_ms())
    return len(instances)
