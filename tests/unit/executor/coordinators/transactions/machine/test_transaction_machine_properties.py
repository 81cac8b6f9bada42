"""What holds of a transactional id whatever is asked of it, in whatever order, and however often."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.transactions.machine.metadata import (
    EXHAUSTED_EPOCH,
    TransactionMetadata,
    TransactionState,
)
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.protocol.errors import ErrorCode
from tests.examples import examples
from tests.unit.executor.coordinators.transactions.machine_conversation import (
    P0,
    P1,
    NotAppendedError,
    Partition,
)

COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
SETTLED = (TransactionState.EMPTY, *COMPLETE)

REQUESTS = ("init", "bump", "add", "commit", "abort")
OPERATIONS = (
    *REQUESTS,
    "markers",
    "time",
    "load",
    "failing",
    "old",
    "upgrade",
)


class Clients:
    """Producers of one transactional id, dead and alive, and what must be so after each thing they do."""

    def __init__(self, transaction_version: int, first_epoch: int) -> None:
        self.partition = Partition(transaction_version=transaction_version)
        producer = self.partition.given(timeout_ms=30_000)
        self.issued: dict[ProducerStamp, object] = {producer: "first"}
        self.stamps = [producer]
        if first_epoch:
            self.stamps.append(self.partition.spend_epochs(producer, first_epoch))
            self.issued[self.stamps[-1]] = "spent"
        self.written = 0
        """Transactions whose markers are written."""

    def act(self, operation: str, which: int, version: int) -> None:
        """Have a producer, perhaps one that was replaced long ago, do something; look whether all is well."""
        partition = self.partition
        stamp = self.stamps[-1] if which % 3 else self.stamps[which % len(self.stamps)]
        if operation in REQUESTS:
            self.ask(operation, stamp, which, version)
        elif operation == "failing":
            self.ask_in_vain(REQUESTS[which % len(REQUESTS)], stamp, which, version)
        elif operation == "old":
            older = self.stamps[:-1] or self.stamps
            self.ask(REQUESTS[which % len(REQUESTS)], older[which % len(older)], which, version)
        elif operation == "markers":
            self.written += len(partition.write_markers())
        elif operation == "time":
            partition.pass_ms(which * 1_000)
        elif operation == "load":
            partition.load()
        elif operation == "upgrade":
            partition.upgrade(2)
        else:
            raise ValueError(operation)
        self.check()

    def ask(self, request: str, stamp: ProducerStamp, which: int, version: int) -> None:
        """Ask for something as a producer; unless by init, only the present one changes anything."""
        partition = self.partition
        before, log_end = partition.known(), len(partition.log)
        assert before is not None
        if request == "init":
            self.issue(partition.init(timeout_ms=30_000).producer, object())
            return
        if request == "bump":
            self.issue(partition.init(timeout_ms=30_000, expected=stamp).producer, ("bump", stamp))
        elif request == "add":
            partition.add(stamp, P0 if which % 2 else P1, version=version)
        elif request in ("commit", "abort"):
            outcome = partition.end(stamp, request == "commit", version=version)
            if version == 2:
                self.issue(outcome.producer, ("end", stamp, request))
            if len(partition.log) > log_end:
                assert outcome.error_code is ErrorCode.none
        else:
            raise ValueError(request)
        if len(partition.log) > log_end and stamp != before.producer:
            # It did not hear that it has the present epoch, and is told so, while that has done nothing.
            assert request == "bump" and before.state in SETTLED
            after = partition.known()
            assert after is not None and after.producer == before.producer

    def ask_in_vain(self, request: str, stamp: ProducerStamp, which: int, version: int) -> None:
        """Ask while nothing can be appended: either that needs no record, or nothing has happened."""
        before, markers = self.partition.all_known(), list(self.partition.markers)
        self.partition.appends = False
        try:
            self.ask(request, stamp, which, version)
        except NotAppendedError:
            assert (self.partition.all_known(), self.partition.markers) == (before, markers)
        finally:
            self.partition.appends = True

    def issue(self, producer: ProducerStamp | None, request: object) -> None:
        """A producer is given an epoch: nobody may have had it, unless this is the same request."""
        if producer is None:
            return
        if producer in self.issued:
            was = self.issued[producer]
            # As of an epoch that it was given, a producer may be told the next one by either request.
            assert isinstance(was, tuple) and isinstance(request, tuple) and was[1] == request[1], (
                was,
                request,
            )
        self.issued.setdefault(producer, request)
        self.stamps.append(producer)

    def check(self) -> None:
        """Assert what must always be true."""
        replayed = TransactionMachine(self.partition.limits)
        completed = 0
        for record in self.partition.log:
            replayed.replay(record, None)
            assert record.value is not None
            metadata = TransactionMetadata.from_value(record.value)  # type: ignore[arg-type]
            completed += metadata.state in COMPLETE
        pairs = replayed.list_all(0, self.partition.now).replies[0].response
        assert dict(pairs) == self.partition.all_known()
        assert completed == self.written


@examples(40)
@given(
    version=st.sampled_from([0, 2]),
    first_epoch=st.sampled_from([0, EXHAUSTED_EPOCH - 2, EXHAUSTED_EPOCH]),
    operations=st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 40), st.sampled_from([0, 2])), max_size=40
    ),
)
def test_whatever_is_asked_no_epoch_is_given_twice_and_replaying_gives_the_same_state(
    version: int, first_epoch: int, operations: list[tuple[str, int, int]]
) -> None:
    """Duplicated, delayed and stale requests, time-outs and failovers, in both versions side by side."""
    clients = Clients(version, first_epoch)
    for operation, which, client_version in operations:
        clients.act(operation, which, min(client_version, version))


@examples(40)
@given(
    requests=st.lists(st.sampled_from(["init", "bump", "add", "commit", "abort"]), max_size=12),
    fails=st.integers(0, 11),
)
def test_what_is_not_appended_has_not_happened(requests: list[str], fails: int) -> None:
    """Min.insync.replicas, a full disk: the coordinator goes on from what its log says."""
    partition = Partition()
    stamp = partition.given()
    actions: dict[str, Callable[[], Any]] = {
        "init": lambda: partition.init().producer,
        "bump": lambda: partition.init(expected=stamp).producer,
        "add": lambda: partition.add(stamp, P0),
        "commit": lambda: partition.end(stamp).producer,
        "abort": lambda: partition.end(stamp, committed=False).producer,
    }
    for number, request in enumerate(requests):
        partition.appends = number != fails
        before = partition.all_known()
        try:
            outcome = actions[request]()
        except NotAppendedError:
            assert number == fails
            assert partition.all_known() == before
            continue
        if isinstance(outcome, ProducerStamp):
            stamp = outcome
        partition.write_markers()
