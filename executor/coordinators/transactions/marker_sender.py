"""Sends transaction markers to the leaders of partitions, and completes transactions that have all markers.

`OutstandingMarkers` decides about requests and their times; this owns the connections and the timer.
Partitions of this broker receive markers like any others, through its listener.

Order for the caller: register among the role listeners and, after the coordinators' runtime, among the
metadata's subscribers; `stop` before the replicas are shut down.

Source: Kafka's TransactionMarkerChannelManager.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Set
from typing import Any, Final

from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest

from sparklog.executor.control.broker_connections import BrokerConnections
from sparklog.executor.coordinators.coordinator_kind import EffectOrigin
from sparklog.executor.coordinators.transactions.machine.events import MarkersWritten, SendMarkers
from sparklog.executor.coordinators.transactions.machine.outstanding_markers import OutstandingMarkers
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.node.clocks import monotonic_ms
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.partition_for import coordinator_partition
from sparklog.node.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

COMPLETED_AT_ONCE: Final = 50
"""Each completion appends a batch: those of one response with hundreds of markers take several turns."""


class MarkerSender(RoleListener[Replica]):
    """The sender of one broker; belongs to its event loop."""

    def __init__(
        self,
        connections: BrokerConnections,
        image: Callable[[], MetadataImage],
        obey_lease: Callable[[], None],
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """`image` is at least as new as this broker's leaderships; a subscriber's copy may be older.

        `obey_lease` is called before a send, as the coordinator may have lost its lease.
        """
        self._connections = connections
        self._image = image
        self._obey_lease = obey_lease
        self._now_ms = now_ms
        self._outstanding = OutstandingMarkers()
        self._sending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._goes_on: asyncio.Handle | None = None
        """The turn of the loop in which completed and new markers are processed."""
        self._stopped = False

    def __len__(self) -> int:
        return len(self._outstanding)

    @property
    def leaderless_count(self) -> int:
        """Number of markers whose partition has no leader."""
        return self._outstanding.leaderless_count

    def missing(self, transactional_id: str) -> Set[TopicPartition] | None:
        """Return the partitions that lack the marker of an id's decision; None if no marker is being sent."""
        found = coordinator_partition(self._image(), TRANSACTION_STATE_TOPIC, transactional_id)
        return None if found is None else self._outstanding.missing(found[0], transactional_id)

    def send(self, markers: SendMarkers, coordinator: EffectOrigin) -> None:
        """Send markers until every partition has one, then notify the coordinator.

        A partition that the image lacks is deleted: it existed when it was added to the transaction, and the
        coordinator leads by an image that is no older.
        """
        now_ms = self._now_ms()
        self._outstanding.metadata_changed(self._image(), now_ms)
        self._outstanding.add(coordinator, markers, now_ms)
        self._go_on_soon()

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._outstanding.metadata_changed(image, self._now_ms())
        self._go_on()

    async def stop(self) -> None:
        self._stopped = True
        for timer in (self._timer, self._goes_on):
            if timer is not None:
                timer.cancel()
        for sending in self._sending:
            sending.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self._connections.close()

    def _forget(self, replica: Replica) -> None:
        if replica.topic_partition.topic == TRANSACTION_STATE_TOPIC:
            self._outstanding.forget(replica.topic_partition.partition)

    became_leader = became_follower = stopped = suspended = deleted = _forget
    """A loaded coordinator adds its own markers."""

    def _go_on_soon(self) -> None:
        if self._goes_on is None:
            self._goes_on = asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Complete transactions, send waiting markers, and set the timer for retries."""
        self._goes_on = None
        if self._stopped:
            return
        completed = self._outstanding.completed[:COMPLETED_AT_ONCE]
        del self._outstanding.completed[:COMPLETED_AT_ONCE]
        if self._outstanding.completed:
            self._go_on_soon()
        for coordinator, markers in completed:
            event = MarkersWritten(markers.transactional_id, markers.producer)
            coordinator.decide(TransactionMachine.markers_written, event)
        ready = list(self._outstanding.ready_brokers)
        if ready:
            self._obey_lease()
        for broker_id in ready:
            request = self._outstanding.next_request(broker_id)
            if request is not None:
                self._start(self._send(broker_id, request))
        due_ms = self._outstanding.next_due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            delay_s = max(due_ms - self._now_ms(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._outstanding.wake(self._now_ms() + 1)  # a timer may be early by the rounding of its clock
        self._go_on()

    async def _send(self, broker_id: BrokerId, request: WriteTxnMarkersRequest) -> None:
        response: Any = None
        try:
            response = await self._connections.request(broker_id, request)
        except KafkaError as error:
            logger.info("Transaction markers may not have reached broker %d: %s", broker_id, error)
        self._outstanding.answered(broker_id, response, self._now_ms())
        self._go_on()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
