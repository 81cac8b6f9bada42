"""Checking readers: one reads along while things break, another reads everything when they have ended."""

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.chaos.ledger import Ledger

BATCH: Final = 1_000
POLL_S: Final = 0.1
ASK_TIMEOUT_S: Final = 5.0
COMPLETE_TIMEOUT_S: Final = 120.0
CLOSE_TIMEOUT_S: Final = 10.0
GONE: Final = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
)
"""What a reader is told when records that it has read are not there any more."""


class ReadingError(Exception):
    """A reader could not do its work."""


class Reader:
    """Reads a topic along, from its beginning, in a thread of its own."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        ledger: Ledger,
        configuration: Mapping[str, object] | None = None,
    ) -> None:
        """`configuration` is librdkafka's, beyond that of `new_consumer`."""
        self.complaints: list[str] = []
        """Errors that must not be, whatever fails."""
        self._ledger = ledger
        self._topic = topic
        self._partitions = range(partitions)
        self._consumer = new_consumer(bootstrap_servers, configuration)
        self._stopping = threading.Event()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def go_on(self) -> None:
        """Forget the complaints, and read on behind what the ledger has."""
        self._goes_on.set()

    def stop(self) -> None:
        """Stop reading. Idempotent."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            # Two of librdkafka's own threads may have locked each other out for good while brokers came and
            # went (its issue 5476); a consumer in that state can be left, not closed.
            closing = threading.Thread(target=self._consumer.close, name="reader's end", daemon=True)
            closing.start()
            closing.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._goes_on.is_set():
                self._goes_on.clear()
                self._begin()
            for message in self._consumer.consume(BATCH, POLL_S):
                error = message.error()
                if error is None:
                    enter(self._ledger, message)
                elif error.code() in GONE:
                    self.complaints.append(f"partition {message.partition()}: {error}")

    def _begin(self) -> None:
        """Assign in the thread that consumes: another one could wait for ever."""
        self.complaints.clear()
        self._consumer.assign(
            [
                TopicPartition(self._topic, partition, self._ledger.next_offset(partition))
                for partition in self._partitions
            ]
        )


def read_everything(bootstrap_servers: str, topic: str, partitions: int, ledger: Ledger) -> None:
    """Read every partition from its first offset to its high watermark.

    Raises:
        ReadingError: not all of it could be read in time.
        KafkaException: a partition does not say where it ends.
    """
    consumer = new_consumer(bootstrap_servers)
    try:
        ends = {
            partition: consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=ASK_TIMEOUT_S
            )[1]
            for partition in range(partitions)
        }
        reached = dict.fromkeys(ends, 0)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        deadline_s = time.monotonic() + COMPLETE_TIMEOUT_S
        while any(reached[partition] < end for partition, end in ends.items()):
            if time.monotonic() > deadline_s:
                raise ReadingError(
                    f"{topic} could not be read in {COMPLETE_TIMEOUT_S:.0f} s: {reached} of {ends}"
                )
            for message in consumer.consume(BATCH, POLL_S):
                if message.error() is None:
                    partition, next_offset = enter(ledger, message)
                    reached[partition] = next_offset
    finally:
        consumer.close()


def new_consumer(bootstrap_servers: str, configuration: Mapping[str, object] | None = None) -> Consumer:
    """Return a consumer that gets an error when records are gone."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "chaos",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
            "reconnect.backoff.max.ms": 1_000,
            **(configuration or {}),
        }
    )


def enter(ledger: Ledger, message: Message) -> tuple[int, int]:
    """Enter a record that was read; return its partition and the offset after it."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None, "records that were read have both"
    ledger.read(partition, offset, message.value() or b"")
    return partition, offset + 1
