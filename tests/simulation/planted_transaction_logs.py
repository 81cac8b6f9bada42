"""Bugs of transactions where they meet logs, that the simulator must find; see `planted`."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.offset_store import OffsetStore
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord, ProducerStamp
from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorPartition
from sparklog.executor.coordinators.transactions.machine.metadata import TransactionMetadata
from sparklog.executor.coordinators.transactions.machine.outstanding_markers import OutstandingMarkers
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.executor.verification import transaction_verifier
from sparklog.node.storage.index.transaction_index import TransactionIndex
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.machine.producer_states import CompletedTransaction, ProducerStates
from sparklog.node.storage.machine.verification import Verifications
from sparklog.protocol.types import Offset
from tests.simulation.coordinating import TRANSACTION_SEEDS
from tests.simulation.planted_bug import PlantedBug, Replacement


def _older_coordinators_marker() -> Sequence[Replacement]:
    check = ProducerStates.check_marker

    def check_producer_only(
        self: ProducerStates, producer_id: int, producer_epoch: int, coordinator_epoch: int, version: int
    ) -> None:
        check(self, producer_id, producer_epoch, 2**31 - 1, version)

    return [Replacement(ProducerStates, "check_marker", check_producer_only)]


def _markers_unchecked() -> Sequence[Replacement]:
    return [Replacement(ProducerStates, "check_marker", lambda self, *of: None)]


def _last_stable_offset_at_high_watermark() -> Sequence[Replacement]:
    return [Replacement(Log, "last_stable_offset", lambda self, high_watermark: high_watermark)]


def _stable_before_replicated() -> Sequence[Replacement]:
    return [
        Replacement(ProducerStates, "first_unstable_offset", lambda self, high_watermark: self._open.first)
    ]


def _open_transaction_forgotten() -> Sequence[Replacement]:
    update = ProducerStates.update

    def update_without(self: ProducerStates, header: Any, now_ms: int) -> None:
        update(self, header, now_ms)
        if now_ms == 0 and self.producers.get(header.producer_id) is not None:  # it is replayed
            self.producers[header.producer_id].transaction_first_offset = None
            self._open.discard(header.base_offset)
            self._unstable.discard(header.base_offset)

    return [Replacement(ProducerStates, "update", update_without)]


def _verification_fails_open() -> Sequence[Replacement]:
    return [Replacement(transaction_verifier, "_refuse", lambda batch, error_code: None)]


def _verification_outlives_the_end() -> Sequence[Replacement]:
    return [Replacement(Verifications, "marker_appended", lambda self, producer_id, producer_epoch: None)]


def _markers_before_the_decision() -> Sequence[Replacement]:
    wait = CoordinatorPartition._await_commit

    def send_at_once(self: CoordinatorPartition, replies: Any, effects: Any, now: Any) -> None:
        self._outgoing.extend(effects)
        wait(self, replies, (), now)

    return [Replacement(CoordinatorPartition, "_await_commit", send_at_once)]


def _complete_without_markers() -> Sequence[Replacement]:
    def took(self: OutstandingMarkers, transaction: Any, partition: Any, error_code: Any) -> bool:
        transaction.missing.discard(partition)
        return True

    return [Replacement(OutstandingMarkers, "_took", took)]


def _leaderless_partition_passed_over() -> Sequence[Replacement]:
    rest = OutstandingMarkers._rest

    def pass_over(self: Any, transaction: Any, partition: Any, asked: Any, due_ms: int) -> None:
        if asked is None:
            transaction.missing.discard(partition)
        else:
            rest(self, transaction, partition, asked, due_ms)

    return [Replacement(OutstandingMarkers, "_rest", pass_over)]


def _offsets_at_once() -> Sequence[Replacement]:
    replay = GroupMachine.replay

    def replay_as_committed(
        self: GroupMachine, record: CoordinatorRecord, producer: ProducerStamp | None
    ) -> None:
        replay(self, record, None)

    return [Replacement(GroupMachine, "replay", replay_as_committed)]


def _aborted_offsets_count() -> Sequence[Replacement]:
    end = OffsetStore.end_transaction

    def commit(self: OffsetStore, producer_id: int, *, committed: bool) -> None:
        end(self, producer_id, committed=True)

    return [Replacement(OffsetStore, "end_transaction", commit)]


def _index_not_cut() -> Sequence[Replacement]:
    return [Replacement(TransactionIndex, "truncate_to", lambda self, offset: None)]


def _index_not_made_anew() -> Sequence[Replacement]:
    end = ProducerStates.end_transaction

    def end_without(
        self: ProducerStates, header: Any, now_ms: int, *, aborted: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        completed = end(self, header, now_ms, aborted=aborted, coordinator_epoch=coordinator_epoch)
        return None if now_ms == 0 else completed  # it is replayed

    return [Replacement(ProducerStates, "end_transaction", end_without)]


def _aborted_begun_before_missed() -> Sequence[Replacement]:
    overlapping = TransactionIndex.overlapping

    def begun_since(self: TransactionIndex, offset: Offset, up_to_offset: Offset, **how: Any) -> Any:
        entries, is_complete = overlapping(self, offset, up_to_offset, **how)
        return [entry for entry in entries if entry.first_offset >= offset], is_complete

    return [Replacement(TransactionIndex, "overlapping", begun_since)]


def _epochs_begin_again() -> Sequence[Replacement]:
    initialized = TransactionMetadata.initialized

    def with_the_same_id(
        self: TransactionMetadata, producer_id: int, producer_epoch: int, timeout_ms: int, wall_ms: int
    ) -> TransactionMetadata:
        return initialized(self, self.producer_id, producer_epoch, timeout_ms, wall_ms)

    def given(self: TransactionMetadata) -> ProducerStamp:
        new = self.bumps_epoch and self.next_producer_id is not None
        return ProducerStamp(self.producer_id, 0) if new else self.producer

    return [
        Replacement(TransactionMetadata, "initialized", with_the_same_id),
        Replacement(TransactionMetadata, "given_producer", property(given)),
    ]


def _timed_out_goes_on() -> Sequence[Replacement]:
    def prepare_only(
        self: TransactionMetadata, transaction_version: int, wall_ms: int, next_producer_id: int | None = None
    ) -> TransactionMetadata:
        return self.prepared(False, 0, wall_ms, next_producer_id)

    return [Replacement(TransactionMetadata, "fenced", prepare_only)]


def _zombie_adds_partitions() -> Sequence[Replacement]:
    known_to = TransactionMachine._known

    def known(self: TransactionMachine, transactional_id: str, producer: ProducerStamp) -> Any:
        there = self._transactions.get(transactional_id)
        if there is not None and there.producer_id == producer.producer_id:
            producer = there.given_producer
        return known_to(self, transactional_id, producer)

    return [Replacement(TransactionMachine, "_known", known)]


def _tick_raises() -> Sequence[Replacement]:
    def abort(self: TransactionMachine, *of: Any) -> Any:
        raise RuntimeError("planted")

    return [Replacement(TransactionMachine, "abort_timed_out", abort)]


_bug = partial(PlantedBug, seeds=TRANSACTION_SEEDS)

TRANSACTION_LOG_BUGS: Final = {
    "older-coordinators-marker": _bug(
        "the marker of a coordinator is taken that another one has followed", _older_coordinators_marker
    ),
    "markers-unchecked": _bug("a marker is taken whose transaction is over", _markers_unchecked),
    "last-stable-offset-ignored": _bug(
        "committed reads go past open transactions", _last_stable_offset_at_high_watermark
    ),
    "stable-before-replicated": _bug(
        "a transaction counts as over before its marker is replicated", _stable_before_replicated
    ),
    "open-transaction-forgotten": _bug(
        "a log that is opened or was cut does not know which transactions are open",
        _open_transaction_forgotten,
    ),
    "verification-fails-open": _bug(
        "what a transaction's coordinator refuses is appended", _verification_fails_open
    ),
    "verification-outlives-the-end": _bug(
        "a batch that was verified is appended when its transaction is over", _verification_outlives_the_end
    ),
    "markers-before-the-decision": _bug(
        "markers are sent before it is committed how a transaction ends", _markers_before_the_decision
    ),
    "complete-without-markers": _bug(
        "a transaction is complete though partitions have refused their markers", _complete_without_markers
    ),
    "leaderless-partition-passed-over": _bug(
        "a partition that has no leader for a while gets no marker", _leaderless_partition_passed_over
    ),
    "offsets-at-once": _bug("offsets show before their transaction is committed", _offsets_at_once),
    "aborted-offsets-count": _bug("offsets of an aborted transaction show", _aborted_offsets_count),
    "index-not-cut": _bug(
        "a log that is cut remembers transactions that were aborted above its end", _index_not_cut
    ),
    "index-not-made-anew": _bug(
        "recovery does not look for the transactions that were aborted", _index_not_made_anew
    ),
    "aborted-begun-before-missed": _bug(
        "a reader is not told of aborted transactions that began before what it reads",
        _aborted_begun_before_missed,
    ),
    "epochs-begin-again": _bug(
        "a producer id whose epochs are used up begins again with the first", _epochs_begin_again
    ),
    "timed-out-goes-on": _bug(
        "a producer goes on in its epoch when its transaction has timed out", _timed_out_goes_on
    ),
    "zombie-adds-partitions": _bug(
        "a producer adds partitions to the transaction of the one after it", _zombie_adds_partitions
    ),
    "tick-raises": _bug("a coordinator's machine raises, and its coordinator goes on", _tick_raises),
}
