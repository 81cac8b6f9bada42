"""Clients: an idempotent producer and a consumer for each partition, which remember what they were told.

A producer sends the next batch when it likes, up to five at a time; what is refused or not answered it sends
again, in order, to whoever leads by then, until it is acknowledged or the topic is gone. Some ask for acks=1
and have no producer id: they are promised nothing, but must not be answered by a deposed leader.
"""

from typing import TYPE_CHECKING, Any, Final

from sparklog.node.metadata.image import MetadataImage, PartitionRegistration
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import BrokerId, Offset, TopicIdPartition
from tests.simulation.broker_process import DescribeTopics
from tests.simulation.leading import START_MS, ConsumerFetch, Fetched, Produce, Produced
from tests.simulation.ledger import Promise
from tests.simulation.network import Link, Process

if TYPE_CHECKING:
    from tests.simulation.cluster import World

REQUEST_TIMEOUT_MS: Final = 1_500
RETRY_MS: Final = 80
READ_PAUSE_MS: Final = 60
_KEYS: Final = 5
"""Of a compacted partition."""
_TOMBSTONES: Final = 0.35
_TOPIC_GONE: Final = frozenset({ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition})


class ClientProcess(Process):
    """A client's machine, with one connection to each broker it knows."""

    def __init__(self, world: "World", host: str) -> None:
        super().__init__(world.network, host)
        self.world = world
        self.image: MetadataImage | None = None
        self._links: dict[BrokerId, Link] = {}
        self._asking = False

    def link(self, broker_id: BrokerId) -> Link:
        """Return the connection to a broker."""
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = Link(self, f"broker-{broker_id}")
        return link

    def refresh(self) -> None:
        """Ask any broker who leads what."""
        if not self._asking:
            self._asking = True
            broker_id = self.scheduler.random.choice(list(self.world.disks))
            self.link(broker_id).request(DescribeTopics(), REQUEST_TIMEOUT_MS, self._described)

    def _described(self, image: MetadataImage | None) -> None:
        self._asking = False
        # Another broker may be behind; clients never go back to an older leader epoch.
        if image is not None and (self.image is None or image.end_offset >= self.image.end_offset):
            self.image = image

    def find(self, topic: str, partition: int) -> tuple[TopicIdPartition, PartitionRegistration] | None:
        """Return a partition as this client knows it."""
        known = None if self.image is None else self.image.topics.by_name.get(topic)
        if known is None or partition not in known.partitions:
            return None
        return TopicIdPartition(known.topic_id, partition), known.partitions[partition]


class Producer:
    """Writes to one partition."""

    def __init__(self, client: ClientProcess, topic: str, partition: int, *, all_acks: bool) -> None:
        self.topic = topic
        self._client = client
        self._world = client.world
        self.partition = partition
        self._all_acks = all_acks
        self._key: TopicIdPartition | None = None
        self._random = client.scheduler.random
        self._pause_ms = self._random.choice((20, 50, 100, 300))
        self._max_in_flight = self._random.randint(1, 5)
        self._number = 0
        self._rests = True
        self._begin_anew()
        self._write_later(500)

    def _begin_anew(self) -> None:
        self._world.next_producer_id += 1
        self._producer_id = self._world.next_producer_id if self._all_acks else -1
        self._sequence = 0
        self._unacknowledged: dict[int, bytes] = {}
        """By number, the oldest first."""
        self._in_flight = 0
        self._must_resend = False
        self._acknowledged_up_to = 0
        """The number of the newest that was acknowledged, 0 before any was."""
        self._losses = 0 if self._key is None else self._world.ledger(self._key).losses
        self._life = object()

    @property
    def is_idle(self) -> bool:
        """Whether everything written was acknowledged."""
        return not self._unacknowledged

    def _write_later(self, within_ms: int) -> None:
        if self._rests and self._world.accepts_writes and self._may_write():
            self._rests = False
            self._client.after(1 + self._random.randrange(within_ms), self._write)

    def _may_write(self) -> bool:
        # Until something is acknowledged nobody knows this producer, so nobody could tell what is missing.
        limit = self._max_in_flight if self._acknowledged_up_to else 1
        # A leader remembers a producer's last five batches: nothing may be unanswered for longer.
        ahead = self._number + 1 - next(iter(self._unacknowledged), self._number + 1)
        return ahead < limit and not self._must_resend

    def _write(self) -> None:
        self._rests = True
        if self._world.accepts_writes and self._may_write():
            count = self._random.randint(1, 3)
            self._number += 1
            batch = build_batch(
                self._records(count),
                producer_id=self._producer_id,
                producer_epoch=0 if self._all_acks else -1,
                base_sequence=self._sequence if self._all_acks else -1,
            )
            self._sequence += count
            self._unacknowledged[self._number] = batch
            self._send(self._number)
        self._write_later(2 * self._pause_ms)

    def _records(self, count: int) -> list[SimpleRecord]:
        value = b"%d" % self._number
        if not self._world.compacts:
            return [SimpleRecord(value=value, timestamp_ms=START_MS)] * count
        return [
            SimpleRecord(
                b"%d" % self._random.randrange(_KEYS),
                None if self._random.random() < _TOMBSTONES else value,
                timestamp_ms=START_MS,
            )
            for _ in range(count)
        ]

    def _send(self, number: int) -> None:
        found = self._client.find(self.topic, self.partition)
        if found is None or found[1].leader is None:
            self._retry_later()
            return
        key, registration = found
        made_anew = self._key is not None and key != self._key
        self._key = key
        if made_anew or self._losses != self._world.ledger(key).losses:
            # The topic is another one, or lost records: what was not acknowledged is lost with it.
            self._begin_anew()
            self._write_later(2 * self._pause_ms)
            return
        self._in_flight += 1
        life, batch = self._life, self._unacknowledged[number]
        assert registration.leader is not None
        self._client.link(registration.leader).request(
            Produce(key, batch, self._all_acks, REQUEST_TIMEOUT_MS // 2),
            REQUEST_TIMEOUT_MS,
            lambda answer: self._answered(life, key, number, batch, answer),
        )

    def _answered(
        self, life: object, key: TopicIdPartition, number: int, batch: bytes, answer: Produced | None
    ) -> None:
        acknowledged = False
        if answer is not None and answer.error_code is ErrorCode.none:
            acknowledged = True
            self._world.promised(Promise(key, answer.base_offset, batch, self._all_acks, answer.leader_epoch))
        if life is not self._life:
            return
        self._in_flight -= 1
        if answer is not None and acknowledged and answer.leader_epoch < self._world.ledger(key).since_epoch:
            # By a leader whose records are lost.
            self._begin_anew()
        elif acknowledged:
            self._acknowledged_up_to = max(self._acknowledged_up_to, number)
            self._unacknowledged.pop(number, None)
        elif not self._all_acks:
            self._unacknowledged.pop(number, None)
            self._client.refresh()
        elif self._is_forgotten(number, answer):
            self._begin_anew()
        else:
            self._retry_later()
            return
        if self._must_resend and self._in_flight == 0:
            self._retry_later()
        self._write_later(2 * self._pause_ms)

    def _is_forgotten(self, number: int, answer: Produced | None) -> bool:
        """Whether a later one is known, but this one no more, although it was written.

        The cleaner keeps of each producer the last batch only, as Kafka's does, and a leader that had to read
        its log anew knows what is in it. Kafka's producer asks for another epoch then.
        """
        return (
            self._world.compacts
            and number < self._acknowledged_up_to
            and answer is not None
            and answer.error_code is ErrorCode.out_of_order_sequence_number
        )

    def _retry_later(self) -> None:
        self._must_resend = True
        self._client.refresh()
        if self._in_flight == 0:
            self._client.after(1 + self._random.randrange(2 * RETRY_MS), self._resend, self._life)

    def _resend(self, life: object) -> None:
        if life is self._life and self._must_resend and self._in_flight == 0:
            self._must_resend = False
            for number in list(self._unacknowledged):
                self._send(number)
                if self._must_resend or life is not self._life:
                    return
            self._write_later(2 * self._pause_ms)


class Consumer:
    """Reads one partition from its beginning."""

    def __init__(self, client: ClientProcess, topic: str, partition: int) -> None:
        self.topic = topic
        self._client = client
        self.partition = partition
        self._key: TopicIdPartition | None = None
        self._offset: Offset = 0
        self._losses = 0
        client.after(client.scheduler.random.randrange(500), self._read)

    def position(self, key: TopicIdPartition) -> Offset:
        """Return up to where it has read a partition."""
        return self._offset if key == self._key else 0

    def _read(self) -> None:
        found = self._client.find(self.topic, self.partition)
        if found is None or found[1].leader is None:
            self._client.refresh()
            self._client.after(1 + self._client.scheduler.random.randrange(2 * RETRY_MS), self._read)
            return
        key, registration = found
        losses = self._client.world.ledger(key).losses
        if key != self._key or losses != self._losses:
            self._key, self._losses, self._offset = key, losses, 0
        assert registration.leader is not None
        self._client.link(registration.leader).request(
            ConsumerFetch(key, registration.leader_epoch, self._offset),
            REQUEST_TIMEOUT_MS,
            lambda answer: self._answered(key, losses, answer),
        )

    def _answered(self, key: TopicIdPartition, losses: int, answer: Fetched | None) -> None:
        world = self._client.world
        ledger = world.ledger(key)
        if ledger.losses != losses or (answer is not None and 0 <= answer.leader_epoch < ledger.since_epoch):
            # What was read may be lost; it is read again from the beginning.
            self._offset = 0
        elif answer is None or answer.error_code is not ErrorCode.none:
            if answer is not None and answer.error_code is ErrorCode.offset_out_of_range:
                world.out_of_range(key, self._offset, answer.leader_epoch)
                self._offset = 0
        else:
            records: Any = answer.records
            for position, header in iterate_headers(records):
                batch = records[position : position + header.size_bytes]
                world.consumed(key, self._offset, batch, answer.leader_epoch)
                self._offset = header.next_offset
            # When nothing more is written it is to come to the end.
            pause_ms = self._client.scheduler.random.randrange(READ_PAUSE_MS) if world.accepts_writes else 0
            self._client.after(1 + pause_ms, self._read)
            return
        self._client.refresh()
        self._client.after(1 + self._client.scheduler.random.randrange(2 * RETRY_MS), self._read)
