"""Watch a topic while it is written: what has been acknowledged, and what a consumer has read.

Acknowledged is what lies below the high watermarks: with acks=all that is what producers were promised.
"""

import itertools
import threading
import time
import zlib
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from jobs.demo.flights import Totals

ACKNOWLEDGED_POLL_S = 0.02
CONSUME_BATCH = 5_000


class Observer:
    """A thread that adds to `timeline`, (seconds since `started_s`, records), until told to stop."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, started_s: float) -> None:
        self.timeline: list[tuple[float, int]] = [(0.0, 0)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "demo-observer",
                "enable.auto.commit": False,
                "socket.timeout.ms": 5_000,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        self._partitions = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        self.started_s = started_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    @property
    def records(self) -> int:
        """How many records it has seen so far."""
        return self.timeline[-1][1]

    def _note(self, records: int) -> None:
        self.timeline.append((time.monotonic() - self.started_s, records))

    def _run(self) -> None:
        raise NotImplementedError


class AcknowledgedObserver(Observer):
    """Follows the high watermarks of all partitions."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, started_s: float) -> None:
        super().__init__(bootstrap_servers, topic, partitions, started_s)
        self._high_watermarks = dict.fromkeys(range(partitions), 0)
        self.advances: dict[int, list[float]] = {partition: [] for partition in range(partitions)}
        """When each partition's high watermark was seen to move, in seconds."""

    def _run(self) -> None:
        while not self._stop.wait(ACKNOWLEDGED_POLL_S):
            for partition in self._partitions:
                try:
                    high_watermark = self._consumer.get_watermark_offsets(partition, timeout=1.0)[1]
                except KafkaException:
                    # Its leader is being replaced; the pause that this makes is what we are here to see.
                    continue
                if high_watermark > self._high_watermarks[partition.partition]:
                    self._high_watermarks[partition.partition] = high_watermark
                    self.advances[partition.partition].append(time.monotonic() - self.started_s)
            self._note(sum(self._high_watermarks.values()))

    def longest_pause_s(self) -> float:
        """Return the longest time between two advances of one partition while it was being written."""
        return max(
            (
                later - earlier
                for advances in self.advances.values()
                for earlier, later in itertools.pairwise(advances)
            ),
            default=0.0,
        )


class ReadingAlong(Observer):
    """Consumes every partition from its beginning, and sums up what it got."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, started_s: float) -> None:
        super().__init__(bootstrap_servers, topic, partitions, started_s)
        self.totals = Totals(records=0, checksum=0)
        self._consumer.assign(self._partitions)

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(CONSUME_BATCH, timeout=0.1)
            values = [value for message in messages if (value := message.value()) and not message.error()]
            if values:
                self.totals = Totals(
                    records=self.totals.records + len(values),
                    checksum=self.totals.checksum + sum(zlib.crc32(value) for value in values),
                )
                self._note(self.totals.records)
