"""Client that carries out the steps of a sink's protocols and the requests of its tasks.

Every step of a commit goes through `perform`, one at a time: a test that stops a process between two steps,
or observes them, wraps it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kio.schema.init_producer_id.v5.response import InitProducerIdResponse

from sparklog.node.metadata.partition_for import CoordinatorType
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import NO_TRANSACTION_TIMEOUT_MS, TopicPartition
from sparklog.user.client.broker_requests import ask_until_answered
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.coordinators import CoordinatorClient
from sparklog.user.client.group_offsets import GroupOffset, OffsetOfTransaction, committed_offsets
from sparklog.user.client.producer import ProducerIdentity
from sparklog.user.client.transactional_ids import Transactions
from sparklog.user.client.transactions import TransactionDescription
from sparklog.user.sink.decisions_topic import DecisionsTopic
from sparklog.user.sink.machine.decisions import (
    IndexEntry,
    LastDecision,
    Position,
    WriterTransaction,
    newest_entry,
)
from sparklog.user.sink.machine.errors import DeciderFencedError, some_of
from sparklog.user.sink.machine.names import DECISIONS_TOPIC, NAMES_PREFIX, SinkId, SinkKind, sink_of
from sparklog.user.sink.machine.steps import (
    AwaitDecision,
    AwaitEnds,
    CommitDecision,
    DeciderStamp,
    EndTransactions,
    FindAbortedDecider,
    FindLastDecision,
    FindOpenTransactions,
    ForgetDecision,
    IndexDecision,
    InitializeDecider,
    ListOpenTransactions,
    Step,
    TransactionEnd,
    WarnOfLeftovers,
    WriteDecision,
)

logger = logging.getLogger(__name__)

_USUAL_MAX_TIMEOUT_MS: Final = 900_000
"""Kafka's default of `transaction.max.timeout.ms`, used if the cluster allows no transactions without a
time-out."""
_DECIDER_TIMEOUT_MS: Final = 10_000
"""Time-out of a decision's transaction, which takes milliseconds.

If a driver dies during one, the next run's tasks wait for this long, and so do other sinks whose decisions
lie in the same partition. A slower decider has to begin again.
"""
_OLD_MS: Final = 10_000
"""Metadata of the decisions' topic that is older is fetched again before a decider is initialized."""
_MOST_LISTED: Final = 5
"""Partitions named in one warning."""
_LEFTOVERS_ENDED_BY: Final = {
    SinkKind.QUERY: "The query's next batch ends it; where none comes, {command} does",
    SinkKind.APPLICATION: (
        "The next write with this txnAppId to the same topic ends it; where none comes, {command} does"
    ),
    SinkKind.JOB: "Only {command} ends it: until then, rows that are written there later stay hidden",
}
_OPEN_STATES: Final = ("Empty", "Ongoing")
_ABORTED_STATES: Final = ("PrepareAbort", "CompleteAbort")
_FENCED: Final = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
        ErrorCode.producer_fenced,
        ErrorCode.transaction_abortable,
        ErrorCode.transactional_id_not_found,
    }
)
"""The decider's transaction was aborted or belongs to a newer decider; the caller has to initialize the
decider again."""
_ENDS: Final = {
    ErrorCode.none: TransactionEnd.DONE,
    ErrorCode.invalid_producer_epoch: TransactionEnd.MOVED_ON,
    ErrorCode.invalid_txn_state: TransactionEnd.OTHERWISE,
    ErrorCode.producer_fenced: TransactionEnd.MOVED_ON,
    ErrorCode.invalid_producer_id_mapping: TransactionEnd.FORGOTTEN,
    ErrorCode.transactional_id_not_found: TransactionEnd.FORGOTTEN,
}


class TransactionTimeoutError(KafkaError):
    """The cluster's `transaction.max.timeout.ms` is below the time-out that the transactions need."""

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(
            ErrorCode.invalid_transaction_timeout,
            f"the cluster allows no transactions of {timeout_ms} ms: set the option "
            "kafka.transaction.timeout.ms to its transaction.max.timeout.ms, or raise that. A batch has to "
            "be written and committed within it, the restart of a failed driver included",
        )


class SinkClient:
    """A client of the target cluster; not thread-safe."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster
        self.last_producer: ProducerIdentity | None = None
        """Identity with which a task wrote last without a transaction; None once another task has
        continued its sequences."""
        self._coordinators = CoordinatorClient(cluster)
        self._transactions = Transactions(cluster, self._coordinators)
        self._decisions = DecisionsTopic(cluster)
        self._timeout_ms = NO_TRANSACTION_TIMEOUT_MS
        """The longest time-out that the cluster has not refused."""
        self._performed: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
            InitializeDecider: self._initialize_decider,
            FindAbortedDecider: self._find_aborted_decider,
            FindLastDecision: self._find_last_decision,
            ListOpenTransactions: self._list_open_transactions,
            FindOpenTransactions: self._find_open_transactions,
            WriteDecision: self._write_decision,
            IndexDecision: self._index_decision,
            CommitDecision: self._commit_decision,
            EndTransactions: self._end_transactions,
            AwaitEnds: self._await_ends,
            AwaitDecision: self._await_decision,
            ForgetDecision: self._forget_decision,
            WarnOfLeftovers: self._warn_of_leftovers,
        }

    def perform(self, step: Step) -> Any:
        """Carry out one step and return its result.

        Raises:
            DeciderFencedError: the step is the decider's, and another decider has been initialized.
            KafkaError: the step can't be carried out.
        """
        return self._performed[type(step)](step)

    def check(self) -> None:
        """Check that the cluster supports exactly-once writes; it is asked once.

        Raises:
            TransactionsUnsupportedError: it does not.
            KafkaError: no broker answered.
        """
        self._transactions.check()

    # Requests of tasks.

    def initialize_writer(
        self, sink: SinkId, writer_ids: Iterator[str], timeout_ms: int | None
    ) -> tuple[WriterTransaction, bool]:
        """Return an empty transaction, and whether it has no time-out.

        It has the first transactional id of `writer_ids`, or the next one each time the fate of an
        initialization is unknown. `timeout_ms` None asks for no time-out, and for Kafka's default maximum
        from a cluster that refuses that.

        Raises:
            TransactionsUnsupportedError, TransactionTimeoutError: the cluster has no such transactions.
            KafkaError: the coordinator could not be asked, or refused.
        """
        self.check()
        wanted_ms = self._timeout_ms if timeout_ms is None else timeout_ms

        def attempt() -> tuple[str, InitProducerIdResponse]:
            transactional_id = next(writer_ids)
            self._find(sink, [transactional_id])
            return transactional_id, self._transactions.initialize_once(transactional_id, wanted_ms)

        transactional_id, response = self.cluster.retry("initializing a transactional id", attempt)
        if response.error_code is ErrorCode.invalid_transaction_timeout:
            if timeout_ms is not None or wanted_ms != NO_TRANSACTION_TIMEOUT_MS:
                raise TransactionTimeoutError(wanted_ms)
            self._timeout_ms = _USUAL_MAX_TIMEOUT_MS
            return self.initialize_writer(sink, writer_ids, None)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, f"transactional id {transactional_id} was refused")
        transaction = WriterTransaction(transactional_id, response.producer_id, response.producer_epoch)
        return transaction, wanted_ms == NO_TRANSACTION_TIMEOUT_MS

    def open_transactions(self) -> list[TransactionDescription]:
        """Return the transactions of all sinks that have begun and not ended.

        Raises:
            KafkaError: a broker can't be asked.
        """
        return self._transactions.described(NAMES_PREFIX, ("Ongoing",))

    def index_entry(self, sink: SinkId) -> IndexEntry | None:
        """Return the index entry of a sink's last decision; it may lag behind a decision in progress.

        Raises:
            UnreadableDecisionError: a newer version of this software wrote it.
            KafkaError: the group's coordinator could not be asked.
        """
        found = self._indexed(sink, stable=False)
        return None if found is None else found[0]

    def undecided(self, sink: SinkId) -> DeciderStamp | None:
        """Return a sink's decider if it has decided nothing.

        Raises:
            KafkaError: the coordinator could not be asked.
        """
        return self._decider_in(sink, _OPEN_STATES)

    # The steps.

    def _initialize_decider(self, step: InitializeDecider) -> DeciderStamp:
        decider_id = step.sink.decider_id
        # A decision in a partition that is missing from stale metadata would be overlooked.
        self.cluster.forget_older(_OLD_MS)
        self._look_up(step.sink, [])
        response = self._transactions.initialize(decider_id, _DECIDER_TIMEOUT_MS)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, f"transactional id {decider_id} was refused")
        return DeciderStamp(response.producer_id, response.producer_epoch)

    def _find_aborted_decider(self, step: FindAbortedDecider) -> DeciderStamp | None:
        return self._decider_in(step.sink, _ABORTED_STATES)

    def _decider_in(self, sink: SinkId, states: Collection[str]) -> DeciderStamp | None:
        for each in self._transactions.describe((sink.decider_id,), states):
            return DeciderStamp(each.producer_id, each.producer_epoch)
        return None

    def _find_last_decision(self, step: FindLastDecision) -> LastDecision | None:
        found = self._indexed(step.sink, stable=True) if step.sink.is_indexed else None
        if found is not None:
            entry, since = found
            if entry.batch_id is None:
                return LastDecision(entry, None, None)
            position, decision = self._decisions.find(step.sink, since, entry)
            return LastDecision(entry, decision, position)
        # Offsets of groups without members expire; the record does not.
        scanned = self._decisions.scan(step.sink)
        if scanned is None:
            return None
        position, decision = scanned
        return LastDecision(decision.entry, decision, position)

    def _list_open_transactions(self, step: ListOpenTransactions) -> list[WriterTransaction]:
        return _transactions(self._transactions.described(step.prefix, _OPEN_STATES, step.named))

    def _find_open_transactions(self, step: FindOpenTransactions) -> list[WriterTransaction]:
        ids = [each.transactional_id for each in step.transactions]
        found = frozenset(_transactions(self._transactions.describe(ids, _OPEN_STATES)))
        return [each for each in step.transactions if each in found]

    def _write_decision(self, step: WriteDecision) -> Position:
        self._look_up(step.sink, [each.transactional_id for each in step.decision.transactions])
        record = self._decisions.appending(step.sink, step.decider, step.decision)
        topic_partition = record.topic_partition
        since = Position(topic_partition.partition, 0)
        if step.after is not None and step.after.partition == since.partition:
            since = step.after._replace(offset=step.after.offset + 1)
        indices = []
        if step.sink.is_indexed:
            indices.append(self._indexing(step.sink, step.decider, since, step.entry))
        ask_until_answered(self.cluster, (record, *indices), doing="writing a decision")
        if isinstance(record.outcome, ErrorCode):
            raise _refused(record.outcome, "appending a decision")
        for index in indices:
            _check_indexed(index)
        assert record.outcome is not None, "it is answered"
        if record.outcome < since.offset:
            raise DeciderFencedError(f"{DECISIONS_TOPIC} was created again since the last decision")
        return Position(topic_partition.partition, record.outcome)

    def _index_decision(self, step: IndexDecision) -> None:
        position = step.position or Position(self._decisions.partition_of(step.sink).partition, 0)
        index = self._indexing(step.sink, step.decider, position, step.entry)
        ask_until_answered(self.cluster, (index,), doing="indexing a decision")
        _check_indexed(index)

    def _indexing(
        self, sink: SinkId, decider: DeciderStamp, since: Position, entry: IndexEntry
    ) -> OffsetOfTransaction:
        return OffsetOfTransaction(
            self._coordinators,
            sink.decider_id,
            (sink.decider_id, *decider),
            TopicPartition(DECISIONS_TOPIC, since.partition),
            GroupOffset(since.offset, entry.encode()),
        )

    def _commit_decision(self, step: CommitDecision) -> DeciderStamp:
        decider_id = step.sink.decider_id
        response = self._transactions.end([(decider_id, *step.decider)], commit=True)[decider_id]
        if response.error_code is not ErrorCode.none:
            raise _refused(response.error_code, "committing a decision")
        return DeciderStamp(response.producer_id, response.producer_epoch)

    def _end_transactions(self, step: EndTransactions) -> dict[WriterTransaction, TransactionEnd]:
        responses = self._transactions.end(step.transactions, commit=step.commit)
        ends = {}
        for transaction in step.transactions:
            error_code = responses[transaction.transactional_id].error_code
            if error_code not in _ENDS:
                raise KafkaError(error_code, f"transaction {transaction} could not be ended")
            ends[transaction] = _ENDS[error_code]
        return ends

    def _await_ends(self, step: AwaitEnds) -> Sequence[WriterTransaction]:
        # Asked to end a transaction again, the coordinator answers once all partitions have their markers.
        try:
            self._transactions.end(step.transactions, commit=step.commit)
        except KafkaError as error:
            # The end is durable: if this step failed, the batch would be written a second time.
            logger.warning(
                "%d transactions of %s are %s, and %s. Brokers go on writing the markers: %s",
                len(step.transactions),
                sink_of(step.transactions[0].transactional_id),
                "committed" if step.commit else "aborted",
                self._not_seen([each.transactional_id for each in step.transactions]),
                error,
            )
            return step.transactions
        return ()

    def _not_seen(self, ids: Sequence[str]) -> str:
        try:
            unmarked = self._transactions.unmarked(ids)
        except KafkaError:
            return "the partitions that still lack markers are unknown"
        if not unmarked:
            return "all readers may see that by now"
        return f"readers do not see that yet in {some_of([str(each) for each in unmarked], _MOST_LISTED)}"

    def _await_decision(self, step: AwaitDecision) -> None:
        if not step.sink.is_indexed:  # the next decider awaits this one's transaction
            return
        # Partitions are named: this may be the sink's first decision, or its first since the topic got more
        # partitions.
        partitions = self._decisions.partitions_of(step.sink)
        committed_offsets(self._coordinators, step.sink.decider_id, stable=True, of=partitions)

    def _forget_decision(self, step: ForgetDecision) -> None:
        try:
            self._decisions.forget(step.sink)
        except KafkaError as error:  # no reader needs it
            logger.warning("The decision of %s is left behind: %s", step.sink.text, error)

    def _warn_of_leftovers(self, step: WarnOfLeftovers) -> None:
        sink = step.sink
        logger.log(
            logging.ERROR if sink.kind is SinkKind.JOB else logging.WARNING,  # an operator has to act
            "A batch of %s is written. Transactions that tasks may have left open could not be ended (%s), "
            "and readers of committed records wait behind that. %s",
            sink.text,
            step.cause,
            _LEFTOVERS_ENDED_BY[sink.kind].format(command=f"sparklog-sinks BOOTSTRAP --end {sink.text}"),
        )

    def _look_up(self, sink: SinkId, writer_ids: list[str]) -> None:
        self.cluster.retry("finding coordinators", lambda: self._find(sink, writer_ids))

    def _find(self, sink: SinkId, writer_ids: list[str]) -> None:
        """Find the coordinators of the next steps as well: each look-up costs a request."""
        keys = {
            CoordinatorType.TRANSACTION: [sink.decider_id, *writer_ids],
            CoordinatorType.GROUP: [sink.decider_id] if sink.is_indexed else [],
        }
        self._coordinators.expect(keys)
        self._coordinators.find(keys)

    def _indexed(self, sink: SinkId, *, stable: bool) -> tuple[IndexEntry, Position] | None:
        committed = committed_offsets(self._coordinators, sink.decider_id, stable=stable)
        found = [
            (IndexEntry.decode(each.metadata), Position(topic_partition.partition, each.offset))
            for topic_partition, each in committed.items()
            if topic_partition.topic == DECISIONS_TOPIC
        ]
        if len(found) < 2:
            return found[0] if found else None
        # The topic was given more partitions: later decisions may lie in another one.
        newest_first = [each.partition for each in self._decisions.partitions_of(sink)]
        return newest_entry(found, newest_first)


def _transactions(described: Iterable[TransactionDescription]) -> list[WriterTransaction]:
    return [
        WriterTransaction(each.transactional_id, each.producer_id, each.producer_epoch) for each in described
    ]


def _check_indexed(index: OffsetOfTransaction) -> None:
    if (error_code := index.error_code) not in (None, ErrorCode.none):
        raise _refused(error_code, "indexing a decision")


def _refused(error_code: ErrorCode, doing: str) -> Exception:
    if error_code in _FENCED:
        return DeciderFencedError(f"{error_code.name} when {doing}")
    return KafkaError(error_code, f"refused when {doing}")
