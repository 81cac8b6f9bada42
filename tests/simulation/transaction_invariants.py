"""What must hold of transactions; see `tests.simulation.invariants`.

Nothing is demanded any more once records that were committed may be lost (see `tests.simulation.ledger`).
"""

from typing import TYPE_CHECKING

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.records.framing import TRANSACTION_STATE_RECORDS
from sparklog.executor.coordinators.transactions.machine.events import SendMarkers
from sparklog.executor.coordinators.transactions.machine.metadata import TransactionMetadata, TransactionState
from sparklog.executor.partitions.replica import Replica
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicIdPartition
from tests.key_values import read_keys_and_values
from tests.simulation.disk import MemoryLog
from tests.simulation.invariant import Invariant
from tests.simulation.ledger import Ledger
from tests.simulation.transaction_logs import LoggedTransaction, PartitionTransactions

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.observer import Observer


class TransactionInvariant(Invariant):
    """What is said of the committed part of partitions that are written in transactions."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._ended_count: dict[TopicIdPartition, int] = {}

    def logs(self, ledger: Ledger) -> PartitionTransactions | None:
        """Return a partition's transactions; None for one that has none, or where nothing is demanded."""
        world = self.world
        topic = world.metadata.image.topics.by_id.get(ledger.key.topic_id)
        if not world.transacts or world.has_lost or topic is None or topic.name == TRANSACTION_STATE_TOPIC:
            return None
        return world.transaction_logs.of(ledger, holds_offsets=topic.name == CONSUMER_OFFSETS_TOPIC)

    def newly_ended(self, ledger: Ledger, logs: PartitionTransactions) -> list[LoggedTransaction]:
        """Return the transactions whose markers are committed since this was called last."""
        count = self._ended_count.get(ledger.key, 0)
        self._ended_count[ledger.key] = len(logs.ended)
        return logs.ended[count:]


class LastStableOffset(TransactionInvariant):
    """A leader's last stable offset never falls, and is where the first open transaction begins."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._seen: dict[tuple[TopicIdPartition, BrokerId, LeaderEpoch], Offset] = {}

    def replica_changed(self, broker: "BrokerProcess", replica: Replica, ledger: Ledger) -> None:
        leader = replica.leadership
        if leader is None or replica.log.loading is not None or not ledger.counts(leader.leader_epoch):
            return
        logs = self.logs(ledger)
        if logs is None or replica.high_watermark > ledger.end_offset:
            return
        offset = replica.last_stable_offset
        expected = logs.last_stable_offset(replica.high_watermark)
        if self.world.compacts:
            # Of a transaction that is over by what is committed, a cleaning may have left nothing.
            over = min(replica.high_watermark, logs.last_stable_offset(ledger.end_offset))
            expected = offset if expected <= offset <= over else expected
        if offset != expected:
            self.fail(
                f"{broker.name} has last stable offset {offset}, the first open transaction below "
                f"{replica.high_watermark} begins at {expected}",
                ledger.key,
            )
        seen = (ledger.key, broker.broker_id, leader.leader_epoch)
        if offset < self._seen.get(seen, 0):
            self.fail(f"{broker.name}'s last stable offset falls to {offset}", ledger.key)
        self._seen[seen] = offset


class CommittedReadsAreWhole(TransactionInvariant):
    """A reader of committed records sees those of committed transactions, all of them, and no others."""

    def read_committed(
        self, offset: Offset, next_offset: Offset, shown: list[Offset], ledger: Ledger
    ) -> None:
        logs = self.logs(ledger)
        if logs is None:
            return
        expected = [batch.base_offset for batch in logs.visible(offset, next_offset)]
        if shown != expected and not (self.world.compacts and set(shown) <= set(expected)):
            self.fail(
                f"a reader from {offset} to {next_offset} sees the batches at {shown}, committed are those "
                f"at {expected}",
                ledger.key,
            )


class AbortedAreIndexed(TransactionInvariant):
    """Every replica in sync knows of each transaction that was aborted."""

    def settled(self, ledger: Ledger, logs: list[MemoryLog]) -> None:
        transactions = self.logs(ledger)
        if transactions is None:
            return
        expected = [
            (each.producer_id, each.first_offset)
            for each in transactions.ended
            if each.names and not each.committed
        ]
        for log in logs:
            indexed = log.aborted_transactions(0, log.log_end_offset, cached_only=True)
            found = [(each.producer_id, each.first_offset) for each in indexed]
            if found != expected and not self.world.compacts:
                self.fail(
                    f"a replica knows of aborted transactions {found}, there are {expected}", ledger.key
                )


class OneTransactionEach(TransactionInvariant):
    """What is written late is in no later transaction, and what is sent late ends none."""

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        logs = self.logs(ledger)
        for transaction in () if logs is None else self.newly_ended(ledger, logs):
            if len(set(transaction.names)) > 1:
                self.fail(f"{set(transaction.names)} have become one transaction", ledger.key)
            for name in transaction.names:
                if transaction.committed and not self.world.transactions[name].commit_asked:
                    self.fail(f"{name} is committed, which nobody has asked for", ledger.key)


class AllOrNone(TransactionInvariant):
    """A transaction ends the same way in all its partitions, with its offsets, and as its client is told."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._ends: dict[str, bool] = {}

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        logs = self.logs(ledger)
        for transaction in () if logs is None else self.newly_ended(ledger, logs):
            for name in set(transaction.names):
                self._check(name, transaction.committed, ledger.key)
                told = self.world.transactions[name].told
                if told is not None:
                    self._check(name, told, ledger.key)

    def _check(self, name: str, committed: bool, key: TopicIdPartition) -> None:
        if self._ends.setdefault(name, committed) is not committed:
            self.fail(f"{name} is both committed and aborted", key)

    def settled(self, ledger: Ledger, logs: list[MemoryLog]) -> None:
        transactions = self.logs(ledger)
        if transactions is None:
            return
        for known in self.world.transactions:
            committed = self._ends.get(known.name, known.told)
            if None not in (committed, known.told) and committed is not known.told:
                self.fail(f"{known.name} has ended {committed}, its client was told {known.told}", ledger.key)
            for key, base_offset in known.acknowledged:
                if key != ledger.key or committed is None:
                    continue
                batch = transactions.batch_at(base_offset)
                of = None if batch is None else batch.transaction
                if of is None or known.name not in of.names:
                    self.fail(f"{known.name} was acknowledged at {base_offset}, and is not there", key)
                elif of.marker_offset is None or of.committed is not committed:
                    self.fail(f"{known.name} has ended {committed}, not so at {base_offset}", key)


class FencedWritesNothing(TransactionInvariant):
    """Once another producer has a transactional id, nothing of those before it is written any more."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._lowest: dict[ProducerId, ProducerEpoch] = {}
        self._last: dict[tuple[TopicIdPartition, ProducerId], ProducerEpoch] = {}

    def producer_given(
        self, transactional_id: str, producer: ProducerStamp, asker: str, *, is_new: bool
    ) -> None:
        producer_id, producer_epoch = producer
        if is_new:
            self._lowest[producer_id] = max(producer_epoch, self._lowest.get(producer_id, 0))

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        if self.logs(ledger) is None:
            return
        for batch in batches:
            header = read_header(batch)
            producer_id, producer_epoch = header.producer_id, header.producer_epoch
            lowest = 0 if header.is_control else self._lowest.get(producer_id, 0)
            lowest = max(lowest, self._last.get((ledger.key, producer_id), 0))
            if header.is_transactional and producer_epoch < lowest:
                self.fail(
                    f"producer {producer_id} of epoch {producer_epoch} has written at {header.base_offset}, "
                    f"and was fenced by epoch {lowest}",
                    ledger.key,
                )
            self._last[ledger.key, producer_id] = producer_epoch


class CoordinatorEpochsRise(TransactionInvariant):
    """No marker of a coordinator lies behind one of the coordinator after it."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._last: dict[tuple[TopicIdPartition, ProducerId], int] = {}

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        logs = self.logs(ledger)
        for transaction in () if logs is None else self.newly_ended(ledger, logs):
            of = (ledger.key, transaction.producer_id)
            before = self._last.get(of, -1)
            if transaction.coordinator_epoch < before:
                self.fail(
                    f"the marker at {transaction.marker_offset} is of the coordinator of epoch "
                    f"{transaction.coordinator_epoch}, one of epoch {before} has written before",
                    ledger.key,
                )
            self._last[of] = transaction.coordinator_epoch


class EpochGivenOnce(TransactionInvariant):
    """No two producers are ever given the same producer id and epoch."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._given: dict[ProducerStamp, str] = {}

    def producer_given(
        self, transactional_id: str, producer: ProducerStamp, asker: str, *, is_new: bool
    ) -> None:
        given_to = self._given.setdefault(producer, asker)
        if given_to != asker and not self.world.has_lost:
            self.fail(f"{asker} is given {producer}, which {given_to} has")


class DecidedThenComplete(TransactionInvariant):
    """Markers are sent when the decision is committed; a transaction is complete when all markers are."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._prepared: dict[str, tuple[TransactionMetadata, dict[TopicIdPartition, int]]] = {}
        """With how many markers of its producer each partition had before."""
        self._decisions: set[tuple[ProducerStamp, bool]] = set()

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        world = self.world
        topic = world.metadata.image.topics.by_id.get(ledger.key.topic_id)
        if not world.transacts or world.has_lost or topic is None or topic.name != TRANSACTION_STATE_TOPIC:
            return
        for batch in batches:
            for key, value in read_keys_and_values(batch, read_header(batch), 0):
                of, known = TRANSACTION_STATE_RECORDS.decode(key, value)
                if known is not None:
                    self._take(of.transactional_id, TransactionMetadata.from_value(known), ledger)

    def _take(self, transactional_id: str, known: TransactionMetadata, ledger: Ledger) -> None:
        if known.state.is_prepared:
            counts = {
                self.world.key_of(*partition): self._marker_count(self.world.key_of(*partition), known)
                for partition in known.partitions
            }
            self._prepared[transactional_id] = (known, counts)
            committed = known.state is TransactionState.PREPARE_COMMIT
            self._decisions.add((known.producer, committed))
        elif known.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
            prepared, counts = self._prepared.pop(transactional_id, (known, {}))
            for key, before in counts.items():
                if self._marker_count(key, prepared) <= before:
                    self.fail(f"{transactional_id} is complete, and {key} has no marker", ledger.key)

    def _marker_count(self, key: TopicIdPartition, known: TransactionMetadata) -> int:
        logs = self.logs(self.world.ledger(key))
        assert logs is not None
        return sum(
            (ended.producer_id, ended.marker_epoch) == known.producer
            and ended.committed is (known.state is TransactionState.PREPARE_COMMIT)
            for ended in logs.ended
        )

    def markers_sent(
        self, broker: "BrokerProcess", leader_epoch: LeaderEpoch, markers: SendMarkers, ledger: Ledger
    ) -> None:
        if self.world.has_lost or not ledger.counts(leader_epoch):
            return
        if (markers.producer, markers.committed) not in self._decisions:
            self.fail(f"{broker.name} sends {markers}, which is not committed", ledger.key)


class CopiedOnce(TransactionInvariant):
    """What is copied in transactions is there once each, in order."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._copied_up_to: Offset = 0
        self._taken = 0

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        logs = self.logs(ledger)
        if logs is None or not all(self.world.has_topic(where.topic) for where in self.world.copied):
            return
        if ledger.key != self.world.key_of(*self.world.copied[1]):
            return
        source = self.logs(self.world.ledger(self.world.key_of(*self.world.copied[0])))
        assert source is not None
        for batch in logs.batches[self._taken :]:
            transaction = batch.transaction
            if transaction is not None and transaction.marker_offset is None:
                break
            self._taken += 1
            if transaction is None or not transaction.committed:
                continue
            name, _, value = batch.value.partition(" ")
            if not self.world.transactions[name].is_of_copier:
                continue
            copied = [int(base_offset) for base_offset in value.split(",")]
            end_offset = copied[-1] + 1
            there = [each.base_offset for each in source.visible(self._copied_up_to, end_offset)]
            if copied != there and not (self.world.compacts and set(copied) <= set(there)):
                self.fail(f"{name} has copied {copied}, from {self._copied_up_to} on are {there}", ledger.key)
            self._copied_up_to = end_offset


class SinksAreWatched(TransactionInvariant):
    """What is committed is told to who watches sinks (`tests.simulation.sink_invariants`)."""

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        if self.world.sinks is not None:
            self.world.sinks.book.committed(ledger, batches)


TRANSACTION_INVARIANTS: tuple[type[Invariant], ...] = (
    LastStableOffset,
    CommittedReadsAreWhole,
    AbortedAreIndexed,
    OneTransactionEach,
    AllOrNone,
    FencedWritesNothing,
    CoordinatorEpochsRise,
    EpochGivenOnce,
    DecidedThenComplete,
    CopiedOnce,
    SinksAreWatched,
)
