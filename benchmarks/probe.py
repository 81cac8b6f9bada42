"""A producer that never stops, in a process of its own, and what was acknowledged to it when.

    with Probe(bootstrap_servers, topic, partitions) as probe:
        ...                                   # break something
        probe.longest_gaps_s(since_s)         # on the clock of time.monotonic()

librdkafka, or the producer of this project, idempotent, acks=all: a record to each partition every 5 ms,
whatever happens. Each record's value names its partition and its number there (`value_of`), so that who reads
it can tell what it is. The process
is another one because a busy interpreter would show as a pause of the cluster; it ends when its standard
input does, so never later than its starter. It has a session of its own: a signal that interrupts a run
reaches all processes of a terminal's group, and the producer still has to say how many records it wrote.

Lines from the process: `a PARTITION NUMBER OFFSET SECONDS` acknowledged, `f PARTITION NUMBER ERROR` given up
by the client, `x ERROR` the producer itself has failed and is replaced, `p PARTITION COUNT` written in all.
"""

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sparklog.node.clocks import wall_clock_ms
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import TopicPartition
from sparklog.user import client

RECORD_INTERVAL_S: Final = 0.005
LIBRDKAFKA: Final = "librdkafka"
SPARKLOG: Final = "sparklog"
PRODUCERS: Final = (LIBRDKAFKA, SPARKLOG)
FLUSH_TIMEOUT_S: Final = 120.0
END_TIMEOUT_S: Final = FLUSH_TIMEOUT_S + 10.0


class ProbeError(Exception):
    """The producer's process ended without its last words."""


def value_of(partition: int, number: int) -> bytes:
    """Return the value of the probe's record `number` of a partition; numbers count from 0."""
    return b"%d %d" % (partition, number)


class Probe:
    """The producer's process, seen from the one that breaks things."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        *,
        record_interval_s: float = RECORD_INTERVAL_S,
        producer: str = LIBRDKAFKA,
        configuration: Mapping[str, object] | None = None,
    ) -> None:
        """`configuration` is librdkafka's, beyond what makes it idempotent; `producer` one of `PRODUCERS`."""
        self.acknowledged_s: Sequence[array[float]] = [array("d") for _ in range(partitions)]
        """When records of each partition were acknowledged, on the monotonic clock."""
        self.numbers: Sequence[array[int]] = [array("q") for _ in range(partitions)]
        """Which records these were."""
        self.offsets: Sequence[array[int]] = [array("q") for _ in range(partitions)]
        """At which offsets; -1 where the client was not told."""
        self._produced: dict[int, int] = {}
        self.failed: list[str] = []
        """What the client gave up, and when it failed as a whole."""
        self._arguments = json.dumps(
            {
                "topic": topic,
                "partitions": partitions,
                "producer": producer,
                "record_interval_s": record_interval_s,
                "configuration": {
                    "bootstrap.servers": bootstrap_servers,
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 5,
                    "log_level": 0,
                    **(configuration or {}),
                },
            }
        )
        self._thread = threading.Thread(target=self._listen, name="probe", daemon=True)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.probe", self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
            start_new_session=True,
        )
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop writing, wait until the client knows of every record, and end the process. Idempotent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        finally:
            self._process.kill()
            self._thread.join()

    @property
    def produced(self) -> list[int]:
        """The number of records that were written to each partition, acknowledged or not; known after `stop`.

        Raises:
            ProbeError: the process ended before it had counted them.
        """
        if len(self._produced) < len(self.numbers):
            raise ProbeError(
                f"the producer ended with status {self._process.poll()} before it said how many records "
                "it wrote"
            )
        return [self._produced[partition] for partition in range(len(self.numbers))]

    def is_running(self) -> bool:
        """Whether the process is there; it is, until it is stopped."""
        return self._process.poll() is None

    def longest_gaps_s(self, since_s: float) -> list[float]:
        """Return each partition's longest time without an acknowledgement that ended after `since_s`."""
        return [
            max(
                (later - earlier for earlier, later in itertools.pairwise(times[first:])),
                default=0.0,
            )
            for times in self.acknowledged_s
            for first in [max(bisect_left(times, since_s) - 1, 0)]
        ]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind == "a":
                partition, number, offset, seconds = rest.split()
                self.numbers[int(partition)].append(int(number))
                self.offsets[int(partition)].append(int(offset))
                self.acknowledged_s[int(partition)].append(float(seconds))
            elif kind == "p":
                partition, count = rest.split()
                self._produced[int(partition)] = int(count)
            else:
                self.failed.append(rest)


OnDelivery = Callable[[KafkaError | None, int | None], None]
"""Called with the error or the offset, as far as the client tells."""


class _Client(Protocol):
    """What the process needs of a producer."""

    def produce(self, partition: int, value: bytes, on_delivery: OnDelivery) -> None: ...

    def poll(self, timeout_s: float) -> None: ...

    def flush(self) -> None: ...


class _Librdkafka:
    """librdkafka's producer."""

    def __init__(self, topic: str, configuration: dict[str, object]) -> None:
        self._topic = topic
        self._producer = Producer(configuration)

    def produce(self, partition: int, value: bytes, on_delivery: OnDelivery) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            on_delivery(error, message.offset())

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)

    def poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)

    def flush(self) -> None:
        with contextlib.suppress(KafkaException):
            self._producer.flush(FLUSH_TIMEOUT_S)


class _Sparklog:
    """This project's producer, a batch a record; it tells no offsets, and takes no other configuration."""

    def __init__(self, topic: str, configuration: dict[str, object]) -> None:
        addresses = client.parse_bootstrap_servers(str(configuration["bootstrap.servers"]))
        cluster = client.ClusterClient(client.ClientConfig(bootstrap_servers=addresses))
        self._topic = topic
        self._producer = client.Producer(cluster, client.ProducerConfig())
        self._producer.start()
        self._waiting: defaultdict[TopicPartition, deque[OnDelivery]] = defaultdict(deque)
        self._reported: Counter[TopicPartition] = Counter()

    def produce(self, partition: int, value: bytes, on_delivery: OnDelivery) -> None:
        topic_partition = TopicPartition(self._topic, partition)
        batch = build_batch(
            [SimpleRecord(value=value, timestamp_ms=wall_clock_ms())],
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            base_sequence=self._producer.next_sequence(topic_partition),
        )
        self._waiting[topic_partition].append(on_delivery)
        self._producer.send(topic_partition, batch, record_count=1)

    def poll(self, timeout_s: float) -> None:
        self._producer.poll(wait_ms=int(1000 * timeout_s))
        self._report()

    def flush(self) -> None:
        self._producer.flush()
        self._report()

    def _report(self) -> None:
        """Tell of what was acknowledged since: the oldest of each partition, for they are in order."""
        for topic_partition, count in (self._producer.acknowledged - self._reported).items():
            for _ in range(count):
                self._waiting[topic_partition].popleft()(None, None)
        self._reported = self._producer.acknowledged.copy()


class _Producing:
    """What the process does."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        producer: str,
        record_interval_s: float,
        configuration: dict[str, object],
    ) -> None:
        self._new_client = partial(_Librdkafka if producer == LIBRDKAFKA else _Sparklog, topic, configuration)
        self._produced = [0] * partitions
        self._record_interval_s = record_interval_s
        self._stopping = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()
        producer: _Client = self._new_client()
        next_s = time.monotonic()
        while not self._stopping.is_set():
            next_s += self._record_interval_s
            try:
                self._produce_until(next_s, producer)
            except KafkaException as error:  # the producer has failed for good, what it still had included
                print("x", error)
                producer = self._new_client()
            sys.stdout.flush()
        producer.flush()
        for partition, count in enumerate(self._produced):
            print("p", partition, count)

    def _produce_until(self, next_s: float, producer: _Client) -> None:
        for partition in range(len(self._produced)):
            self._produce(producer, partition)
        producer.poll(0)
        while (left_s := next_s - time.monotonic()) > 0:
            producer.poll(left_s)

    def _produce(self, producer: _Client, partition: int) -> None:
        number = self._produced[partition]
        delivered = partial(self._delivered, partition, number)
        try:
            producer.produce(partition, value_of(partition, number), delivered)
        except BufferError:  # of a long pause; the next round has another record
            return
        self._produced[partition] += 1

    def _delivered(self, partition: int, number: int, error: KafkaError | None, offset: int | None) -> None:
        if error is not None:
            print("f", partition, number, error)
            return
        print("a", partition, number, -1 if offset is None or offset < 0 else offset, time.monotonic())

    def _wait_for_the_end(self) -> None:
        sys.stdin.read()
        self._stopping.set()


if __name__ == "__main__":
    _Producing(**json.loads(sys.argv[1])).run()
