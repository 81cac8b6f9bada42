"""Pushed telemetry, on its way from the controller's loop into the metrics of nodes and clients.

The loop answers heartbeats, so it only queues bytes; a thread expands and reads them. The newest push of each
sender is kept, within bounds of number and size: when the thread is behind, the oldest is dropped. Nodes come
first. A client may use any number of instance ids, so that no push interval bounds all pushes together: the
thread, which shares the controller's interpreter, reads a fixed number of them a second.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from sparklog.driver.monitoring.broker_metrics import BrokerMetrics
from sparklog.driver.monitoring.client_metrics import MAX_SAMPLES_EACH, ClientMetrics, ReceivedClientMetrics
from sparklog.protocol.records.codecs import Codec, decompress
from sparklog.protocol.types import BrokerId, TimestampMs

MAX_WAITING: Final = 256
MAX_WAITING_BYTES: Final = 32 << 20
CLIENTS_READ_A_SECOND: Final = 100
MAX_EXPANDED_BYTES: Final = 16 << 20
MAX_EXPANDED_BYTES_OF_CLIENTS: Final = 1 << 20
"""Much less, since a kilobyte expands to as much, and reading it takes hundreds of times the memory."""

_Sender: TypeAlias = tuple[BrokerId | None, UUID]

logger = logging.getLogger(__name__)


class Push(NamedTuple):
    node_id: BrokerId | None
    """The node that sent it; None if it was a client."""
    client_instance_id: UUID
    client_id: str | None
    is_terminating: bool
    compression_type: int
    metrics: bytes
    received_at_ms: TimestampMs


class TelemetryIntake:
    """Takes pushes from any thread. Order: `start`, anything, `stop`."""

    def __init__(
        self, brokers: BrokerMetrics, clients: ClientMetrics, clock: Callable[[], float] = monotonic
    ) -> None:
        self._brokers = brokers
        self._clients = clients
        self._clock = clock
        self._clients_due_s = clock()
        """When the next push of a client may be read."""
        self._changed = threading.Condition()
        self._waiting: OrderedDict[_Sender, Push] = OrderedDict()
        """By sender; a client that pushes under a node's id replaces no push but its own."""
        self._waiting_bytes = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="sparklog telemetry", daemon=True)
        self._failed = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def take(self, push: Push) -> None:
        """Queue the push; takes no time."""
        with self._changed:
            key = push.node_id, push.client_instance_id
            before = self._waiting.pop(key, None)
            self._waiting_bytes += len(push.metrics) - (0 if before is None else len(before.metrics))
            self._waiting[key] = push
            while len(self._waiting) > MAX_WAITING or self._waiting_bytes > MAX_WAITING_BYTES:
                self._take(self._oldest(of_nodes=False) or next(iter(self._waiting)))
            self._changed.notify()

    def _oldest(self, *, of_nodes: bool) -> _Sender | None:
        return next((sender for sender in self._waiting if (sender[0] is not None) is of_nodes), None)

    def _take(self, sender: _Sender) -> Push:
        push = self._waiting.pop(sender)
        self._waiting_bytes -= len(push.metrics)
        return push

    def _next(self) -> Push | None:
        """Wait for the next push to read; None after `stop`."""
        with self._changed:
            while not self._stopped:
                sender = self._oldest(of_nodes=True)
                if sender is not None:
                    return self._take(sender)
                wait_s = None
                sender = self._oldest(of_nodes=False)
                if sender is not None:
                    now_s = self._clock()
                    if now_s >= self._clients_due_s:
                        self._clients_due_s = now_s + 1 / CLIENTS_READ_A_SECOND
                        return self._take(sender)
                    wait_s = self._clients_due_s - now_s
                self._changed.wait(wait_s)
        return None

    def _run(self) -> None:
        while (push := self._next()) is not None:
            try:
                self._read(push)
            except Exception as error:  # the bytes are a client's, and the next push must be read
                sender = f"client {push.client_id!r}" if push.node_id is None else f"node {push.node_id}"
                level = logging.DEBUG if self._failed else logging.WARNING
                self._failed = True
                logger.log(level, "Metrics of %s cannot be read: %s", sender, error)

    def _read(self, push: Push) -> None:
        # Loads protobuf: not before the first push, and not on the controller's loop.
        from sparklog.driver.monitoring.otlp_decoding import decode_client_metrics, decode_node_metrics

        limit = MAX_EXPANDED_BYTES_OF_CLIENTS if push.node_id is None else MAX_EXPANDED_BYTES
        metrics = bytes(decompress(Codec(push.compression_type), push.metrics, limit))
        if push.node_id is not None:
            self._brokers.received(push.node_id, decode_node_metrics(metrics), push.received_at_ms)
        elif push.is_terminating:
            self._clients.ended(push.client_instance_id)
        else:
            values = decode_client_metrics(metrics, MAX_SAMPLES_EACH)
            received = ReceivedClientMetrics(push.client_id, push.received_at_ms, values)
            self._clients.received(push.client_instance_id, received)
