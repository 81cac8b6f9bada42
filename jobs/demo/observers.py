"""Watch a topic while it is written: acknowledged records, and the records that a consumer has read.

Acknowledged records lie below the high watermarks: with acks=all that is the promise to producers. sparklog's
own client lists them, since librdkafka asks the leaders of partitions one after the other, and waits for a
dead leader until its time-out, which would look like a pause of all partitions.

The write is one batch in transactions, so the consumer reads nothing until the batch commits. Markers of the
transactions follow the last record of each partition a second or two later: Spark ends the tasks first, and
then the driver commits. Markers move high watermarks, too, but are not records, and that time is not a pause:
pauses count up to the last record that the consumer has read. A task that Spark runs again writes its records
again, and the first ones are aborted, so acknowledged records do not tell the end of the write.
"""

import itertools
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConsumedPartition

from sparklog.jobs.demo.flights import Totals
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import TopicPartition
from sparklog.user import client

ACKNOWLEDGED_POLL_S = 0.02
CONSUME_BATCH = 5_000


@dataclass(frozen=True, slots=True)
class Observed:
    """The course of a write; records over seconds since it began."""

    acknowledged: Sequence[tuple[float, int]]
    consumed: Sequence[tuple[float, int]]
    killed_s: float
    killed: str

    @property
    def committed_s(self) -> float | None:
        """The time of the consumer's first records."""
        return next((seconds for seconds, records in self.consumed if records), None)


class Observer:
    """A thread that adds to `timeline`, (seconds since `started_s`, records), until the end of its block."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, started_s: float) -> None:
        self.timeline: list[tuple[float, int]] = [(0.0, 0)]
        self.started_s = started_s
        self._bootstrap_servers = bootstrap_servers
        self._partitions = [TopicPartition(topic, partition) for partition in range(partitions)]
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

    @property
    def records(self) -> int:
        return self.timeline[-1][1]

    def _note(self, records: int) -> None:
        self.timeline.append((time.monotonic() - self.started_s, records))

    def _run(self) -> None:
        raise NotImplementedError


class AcknowledgedObserver(Observer):
    """Follows the high watermarks of all partitions."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, started_s: float) -> None:
        super().__init__(bootstrap_servers, topic, partitions, started_s)
        self._advances: dict[TopicPartition, list[tuple[float, int]]] = {
            each: [] for each in self._partitions
        }
        """Each partition's high watermarks, and the seconds at which they were seen."""

    def _run(self) -> None:
        addresses = client.parse_bootstrap_servers(self._bootstrap_servers)
        high_watermarks = dict.fromkeys(self._partitions, 0)
        latest = dict.fromkeys(self._partitions, client.SpecialOffset.LATEST)
        with client.ClusterClient(client.ClientConfig(bootstrap_servers=addresses)) as cluster:
            while not self._stop.wait(ACKNOWLEDGED_POLL_S):
                try:
                    listed = client.list_offsets(cluster, latest)
                except KafkaError:
                    # A leader is being replaced; that pause is a result.
                    continue
                seen_s = time.monotonic() - self.started_s
                for partition, (high_watermark, _) in listed.items():
                    assert high_watermark is not None, "a partition has an end"
                    if high_watermark > high_watermarks[partition]:
                        high_watermarks[partition] = high_watermark
                        self._advances[partition].append((seen_s, high_watermark))
                self._note(sum(high_watermarks.values()))

    def longest_pause_s(self, ends: Mapping[TopicPartition, int]) -> float:
        """Return the longest time between two advances of one partition, up to the one that passes its end.

        Of a partition that is not in `ends` every advance counts.
        """
        return max(
            (
                later_s - earlier_s
                for partition, advances in self._advances.items()
                for (earlier_s, high_watermark), (later_s, _) in itertools.pairwise(advances)
                if partition not in ends or high_watermark < ends[partition]
            ),
            default=0.0,
        )


class ReadingAlong(Observer):
    """Consumes every partition from its beginning, with count and checksum."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, started_s: float) -> None:
        super().__init__(bootstrap_servers, topic, partitions, started_s)
        self.totals = Totals(records=0, checksum=0)
        self.ends: dict[TopicPartition, int] = {}
        """The offset after the last record of each partition."""

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": "demo-observer",
                "enable.auto.commit": False,
                "socket.timeout.ms": 5_000,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        consumer.assign([ConsumedPartition(*partition, 0) for partition in self._partitions])
        while not self._stop.is_set():
            messages = consumer.consume(CONSUME_BATCH, timeout=0.1)
            messages = [message for message in messages if not message.error()]
            values = [value for message in messages if (value := message.value())]
            for message in messages:
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                self.ends[TopicPartition(topic, partition)] = offset + 1
            if values:
                self.totals = Totals(
                    records=self.totals.records + len(values),
                    checksum=self.totals.checksum + sum(zlib.crc32(value) for value in values),
                )
                self._note(self.totals.records)
        consumer.close()
