"""What an observer knows of sinks: what was decided, by whom, which rows that is, and what became of it.

Told by the ledgers of the logs, so that it is true whatever any process believes. A decision is made in the
moment in which its decider's transaction is prepared to commit; and so is the end of a task's transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparklog.executor.coordinators.records.framing import TRANSACTION_STATE_RECORDS
from sparklog.executor.coordinators.transactions.machine.metadata import TransactionMetadata, TransactionState
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.types import ProducerEpoch, ProducerId
from sparklog.user.sink.decisions_topic import DECISIONS_TOPIC
from sparklog.user.sink.machine.decisions import Decision, LastDecision, WriterTransaction
from sparklog.user.sink.machine.names import SinkId, SinkKind, sink_of
from sparklog.user.sink.machine.steps import AwaitEnds, FindLastDecision, Step, WarnOfLeftovers
from tests.key_values import read_keys_and_values
from tests.simulation.ledger import Ledger
from tests.simulation.sink_invariants import SINK_INVARIANTS, SinkInvariant
from tests.simulation.transaction_book import ClientTransaction, TransactionBook
from tests.simulation.transaction_logs import TransactionLogs, name_of_producer

if TYPE_CHECKING:
    from tests.simulation.cluster import World

_PREPARED: Final = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}


@dataclass(slots=True)
class KnownSink:
    """One sink."""

    decisions: list[Decision] = field(default_factory=list)
    """All that were made, in their order."""
    named: dict[WriterTransaction, int] = field(default_factory=dict)
    """The transactions of decisions, with their batches."""
    given_up: set[tuple[int, str]] = field(default_factory=set)
    """Batches and runs of which a driver was told that they were not decided, and never will be."""


class BookOfProducers(TransactionBook):
    """Transactions by who writes them: in version 2 each has an epoch of its own."""

    def __getitem__(self, name: str) -> ClientTransaction:
        if name not in self._transactions:
            producer_id, producer_epoch = name.rsplit("-", 1)
            self.begin(name, (int(producer_id), int(producer_epoch)))  # type: ignore[arg-type]
        return super().__getitem__(name)


class SinkBook:
    """All sinks."""

    def __init__(self, world: "World") -> None:
        self.world: Final = world
        world.transactions = BookOfProducers()
        world.transaction_logs = TransactionLogs(named_by_producer=True)
        self.sinks: dict[str, KnownSink] = {}
        self.rows: dict[tuple[ProducerId, ProducerEpoch], list[str]] = {}
        """What is in a transaction."""
        self.told_unseen: set[WriterTransaction] = set()
        """Of which somebody was told that readers may not see how they ended."""
        self._appended: dict[tuple[ProducerId, ProducerEpoch], tuple[str, Decision]] = {}
        self._state: dict[str, tuple[ProducerId, ProducerEpoch, TransactionState]] = {}
        self._invariants: list[SinkInvariant] = [invariant(world, self) for invariant in SINK_INVARIANTS]

    def sink(self, text: str) -> KnownSink:
        """Return what is known of a sink."""
        return self.sinks.setdefault(text, KnownSink())

    @property
    def is_held(self) -> bool:
        """Whether anything is demanded: not once anything committed may be lost."""
        return not self.world.has_lost

    # --- what logs say --------------------------------------------------------------------------

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        """A leader's high watermark has passed these batches."""
        topic = self.world.metadata.image.topics.by_id.get(ledger.key.topic_id)
        if topic is None or topic.name == CONSUMER_OFFSETS_TOPIC or not self.is_held:
            return
        for batch in batches:
            header = read_header(batch)
            if topic.name == TRANSACTION_STATE_TOPIC:
                for key, value in read_keys_and_values(batch, header, 0):
                    of, known = TRANSACTION_STATE_RECORDS.decode(key, value)
                    if known is not None:
                        self._state_changed(of.transactional_id, TransactionMetadata.from_value(known))
            elif not header.is_control:
                producer = (header.producer_id, header.producer_epoch)
                for record in read_records(batch, header):
                    if topic.name != DECISIONS_TOPIC:
                        assert record.value is not None
                        self.rows.setdefault(producer, []).append(record.value.decode())
                    elif record.value is not None:
                        assert record.key is not None
                        self._appended[producer] = (record.key.decode(), Decision.decode(record.value))

    def _state_changed(self, transactional_id: str, known: TransactionMetadata) -> None:
        self._state[transactional_id] = (*known.producer, known.state)
        sink = sink_of(transactional_id)
        if sink is None or known.state not in _PREPARED:
            return
        producer = (known.producer_id, known.producer_epoch - 1)
        committed = _PREPARED[known.state]
        if transactional_id != f"sparklog-sink.{sink}":
            transaction = WriterTransaction(transactional_id, *producer)
            for invariant in self._invariants:
                invariant.writer_ended(sink, transaction, committed=committed)
        elif committed and producer in self._appended:
            of, decision = self._appended[producer]
            assert of == sink
            self.world.tell(None, f"{sink} decides batch {decision.batch_id} of {decision.run_id}")
            self.world.outcome.decisions += 1
            for invariant in self._invariants:
                invariant.decided(sink, decision)
            self.sink(sink).decisions.append(decision)
            self.sink(sink).named |= dict.fromkeys(decision.transactions, decision.batch_id)

    def open_writers(self) -> list[str]:
        """Return the transactional ids that have something open."""
        return [
            transactional_id
            for transactional_id, (_, _, state) in self._state.items()
            if sink_of(transactional_id) is not None and state is TransactionState.ONGOING
        ]

    def is_visible(self, transaction: WriterTransaction) -> bool:
        """Whether readers see all of a transaction: it has its markers, and they are committed."""
        producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
        for where in self.world.data_partitions:
            if not self.world.has_topic(where.topic):  # it is being created, and nobody has written to it
                continue
            ledger = self.world.ledger(self.world.key_of(*where))
            for logged in self.world.transaction_logs.of(ledger).begun:
                is_it = (logged.producer_id, logged.producer_epoch) == (producer_id, producer_epoch)
                if is_it and (logged.marker_offset is None or not logged.committed):
                    return False
        return True

    # --- what processes do and are told ---------------------------------------------------------

    def sent(self, process: str, sink: SinkId | None, request: Any) -> None:
        """A process is about to send a request."""
        transactional_id = getattr(request, "transactional_id", None)
        api_key = ApiKey(request.__api_key__)
        if transactional_id is None or sink is None:
            return
        for invariant in self._invariants:
            invariant.asked(process, sink.text, api_key, transactional_id)
        if api_key is ApiKey.END_TXN and request.committed:
            self._transaction(request).commit_asked = True

    def answered(self, request: Any, response: Any) -> None:
        """A process was answered."""
        api_key = ApiKey(request.__api_key__)
        if api_key is ApiKey.END_TXN and response.error_code is ErrorCode.none:
            self._transaction(request).told = request.committed
            self.world.outcome.transactions += 1
        elif api_key is ApiKey.PRODUCE and request.transactional_id is not None:
            for topic, answers in zip(request.topic_data, response.responses, strict=True):
                for data, row in zip(topic.partition_data, answers.partition_responses, strict=True):
                    if row.error_code is ErrorCode.none:
                        header = read_header(data.records)
                        key = self.world.key_of(topic.name, data.index)
                        transaction = self.world.transactions[name_of_producer(header)]
                        transaction.acknowledged.append((key, row.base_offset))

    def _transaction(self, request: Any) -> ClientTransaction:
        return self.world.transactions[f"{request.producer_id}-{request.producer_epoch}"]

    def before(self, step: Step) -> int:
        """Return how many decisions there are before a step is taken."""
        return len(self.sink(step.sink.text).decisions) if isinstance(step, FindLastDecision) else 0

    def performed(self, step: Step, before: int, result: Any) -> None:
        """A step was taken."""
        if isinstance(step, AwaitEnds):
            self.told_unseen.update(result or ())
        if isinstance(step, WarnOfLeftovers) and step.sink.kind is SinkKind.JOB:  # nobody else ends them
            self.world.scheduler.after(1, self.world.sinks.settle, step.sink, lambda: None)
        if self.is_held and isinstance(step, FindLastDecision):
            found: LastDecision | None = result
            for invariant in self._invariants:
                invariant.found(step.sink, before, None if found is None else found.decision)

    def reported(self, sink: SinkId, batch_id: int, rows: Sequence[str]) -> None:
        """A driver was told that a batch is written."""
        for invariant in self._invariants if self.is_held else ():
            invariant.reported(sink, batch_id, rows)

    def given_up(self, sink: SinkId, batch_id: int, run_id: str) -> None:
        """A driver was told that a batch is not written, and will not be by this run."""
        self.sink(sink.text).given_up.add((batch_id, run_id))

    def settled(self, expected: dict[str, set[str]]) -> None:
        """Nobody writes any more; `expected` has each writer's rows that are to be there."""
        for invariant in self._invariants if self.is_held else ():
            invariant.ended(expected)
