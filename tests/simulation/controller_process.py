"""The driver's process: the production controller over a metadata log in memory, its only writer yet.

It does what `driver.controller.commits`, `metadata_fetches` and `departures` do around the machine: decide,
replay at once, answer and publish when the fsync is done, hold fetches at the end of the log, probe a broker
whose connection has ended. The log outlives the process, but for what was not fsynced. When voters replicate
the log, they take the place of `MetadataDisk`.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from driver.controller.controller import Controller
from driver.controller.decision import Decision
from sparklog.config import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.metadata.schemas import BrokerRegistrationChangeRecord, MetadataRecord
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tests.simulation.network import Connection, Network, Process, Reply

CLUSTER_ID: Final = "simulated"
CONTROLLER_HOST: Final = "driver"
MAX_WAIT_MS: Final = 500
TICK_MS: Final = 50
_FENCED: Final = 1


class MetadataBatch(NamedTuple):
    """One batch of the metadata log; none of its records is a control record."""

    records: list[MetadataRecord]
    last_offset: Offset
    leader_epoch: LeaderEpoch


class MetadataFetch(NamedTuple):
    """A broker asks for what follows `offset`."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch | None
    offset: Offset


class MetadataDisk:
    """What the driver has fsynced."""

    def __init__(self) -> None:
        self.batches: list[MetadataBatch] = []
        self.images: dict[Offset, MetadataImage] = {}
        """The controller's own image after each batch, for the invariants."""
        self.high_watermark: Offset = 0
        self.next_topic_id = 1000


class ControllerProcess(Process):
    """One life of the driver."""

    def __init__(
        self,
        network: Network,
        disk: MetadataDisk,
        config: BrokerConfig,
        on_decision: Callable[[MetadataImage, MetadataImage], None],
        on_silence: Callable[[BrokerId], None],
        on_commit: Callable[[], None],
    ) -> None:
        super().__init__(network, CONTROLLER_HOST, clock_offset_ms=network.scheduler.random.randrange(10**6))
        self._disk = disk
        self._on_decision = on_decision
        self._on_silence = on_silence
        self._on_commit = on_commit
        self.committed_image = disk.images[disk.batches[-1].last_offset] if disk.batches else EMPTY_IMAGE
        self.leader_epoch = (disk.batches[-1].leader_epoch if disk.batches else 0) + 1
        self.controller = Controller(CLUSTER_ID, config, self._new_topic_id, self.committed_image)
        self._appended: deque[tuple[MetadataBatch, MetadataImage]] = deque()
        self._answers: deque[tuple[Offset, Callable[[], None]]] = deque()
        self._flushing = False
        self._fetches: dict[int, tuple[MetadataFetch, Reply]] = {}
        self._fetch_number = 0
        self._brokers: dict[Connection, BrokerId] = {}
        # The control record that begins the epoch.
        self._append([])
        self._decide(self.controller.bootstrap())
        self.after(TICK_MS, self._tick)

    # --- requests -------------------------------------------------------------------------------

    def receive(self, connection: Connection, message: Any, reply: Reply) -> None:
        if type(message) is MetadataFetch:
            self._fetch(message, reply)
            return
        broker_id = getattr(message, "broker_id", None)

        def answer(response: Any) -> None:
            if broker_id is not None and response.error_code is ErrorCode.none:
                self._brokers[connection] = broker_id
            reply(response)

        self._submit(self.controller.handle(message, self.now_ms), answer)

    def disconnected(self, connection: Connection) -> None:
        broker_id = self._brokers.pop(connection, None)
        if broker_id is not None:
            self.suspect(broker_id)

    def suspect(self, broker_id: BrokerId) -> None:
        """Probe the listener of a broker's present registration."""
        registration = self.controller.image.brokers.get(broker_id)
        if registration is not None:
            probe = (registration.broker_id, registration.broker_epoch, registration.incarnation_id)
            self.after(self.network.delay_ms(), self._probe, *probe)

    def _probe(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, incarnation_id: UUID) -> None:
        network, host = self.network, f"broker-{broker_id}"
        if (
            host in network.crashed_hosts
            or network.is_cut(self.host, host)
            or network.is_cut(host, self.host)
        ):
            return
        listener = network.listening.get(host)
        # Every process listens on a port of its own.
        if listener is None or getattr(listener, "incarnation_id", None) != incarnation_id:
            self._decide(self.controller.broker_gone(broker_id, broker_epoch))

    def _tick(self) -> None:
        while (decision := self.controller.tick(self.now_ms)).records:
            for record in decision.records:
                if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == _FENCED:
                    self._on_silence(record.broker_id)
            self._decide(decision)
        self.after(TICK_MS, self._tick)

    # --- commits --------------------------------------------------------------------------------

    def _decide(self, decision: Decision) -> None:
        self._submit(decision, lambda _: None)

    def _submit(self, decision: Decision, answer: Callable[[Any], None]) -> None:
        if decision.records:
            self._append(decision.records)
        end_offset = self.controller.image.end_offset
        if end_offset <= self._disk.high_watermark:
            answer(decision.reply)
            return
        self._answers.append((end_offset, lambda: answer(decision.reply)))

    def _append(self, records: list[MetadataRecord]) -> None:
        before = self.controller.image
        last_offset = before.end_offset + max(len(records), 1) - 1
        self.controller.replay(records, last_offset, self.leader_epoch)
        batch = MetadataBatch(records, last_offset, self.leader_epoch)
        self._appended.append((batch, self.controller.image))
        self._on_decision(before, self.controller.image)
        if not self._flushing:
            self._flushing = True
            self.after(self._flush_ms(), self._flushed, len(self._appended))

    def _flush_ms(self) -> int:
        return self.scheduler.random.randint(2, 15)

    def _flushed(self, count: int) -> None:
        disk = self._disk
        for _ in range(count):
            batch, image = self._appended.popleft()
            disk.batches.append(batch)
            disk.images[batch.last_offset] = image
            disk.high_watermark = batch.last_offset + 1
            self.committed_image = image
        self._on_commit()
        for number in list(self._fetches):
            self._answer_fetch(number)
        while self._answers and self._answers[0][0] <= disk.high_watermark:
            self._answers.popleft()[1]()
        self._flushing = bool(self._appended)
        if self._flushing:
            self.after(self._flush_ms(), self._flushed, len(self._appended))

    # --- metadata fetches -----------------------------------------------------------------------

    def _fetch(self, fetch: MetadataFetch, reply: Reply) -> None:
        registration = self.controller.image.brokers.get(fetch.broker_id)
        if registration is not None and registration.broker_epoch == fetch.broker_epoch:
            self.controller.metadata_fetched(fetch.broker_id, fetch.offset)
        self._fetch_number += 1
        self._fetches[self._fetch_number] = (fetch, reply)
        if fetch.offset < self._disk.high_watermark:
            self._answer_fetch(self._fetch_number)
        else:
            self.after(MAX_WAIT_MS, self._answer_fetch, self._fetch_number)

    def _answer_fetch(self, number: int) -> None:
        waiting = self._fetches.pop(number, None)
        if waiting is not None:
            fetch, reply = waiting
            batches: list[MetadataBatch] = []
            for batch in reversed(self._disk.batches):
                if batch.last_offset < fetch.offset:
                    break
                batches.append(batch)
            reply((batches[::-1], self._disk.high_watermark))

    def _new_topic_id(self) -> UUID:
        self._disk.next_topic_id += 1
        return UUID(int=self._disk.next_topic_id)
