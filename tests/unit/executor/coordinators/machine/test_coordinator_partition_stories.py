"""The partition under any order of events: everybody is answered once, and by what is committed."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    ProducerStamp,
    Reply,
)
from sparklog.executor.coordinators.machine.coordinator_partition import (
    CoordinatorPartition,
    CoordinatorState,
)
from sparklog.executor.coordinators.records.transaction_state import TransactionLogKey
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.examples import examples

WRITE_TIMEOUT_MS = 50


class Counting:
    """A machine whose state is how many records there are; it answers with that."""

    next_due_ms = None

    def __init__(self) -> None:
        self.count = 0

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        self.count += 1

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        raise AssertionError("there is none")

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        return ()

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        return ()

    def tick(self, now: Now) -> Iterable[CoordinatorResult]:
        return ()

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        return None


class Asked(NamedTuple):
    """A request by its number, and the story it is part of."""

    number: int
    story: "PartitionStories"

    def __hash__(self) -> int:
        return self.number

    def answer(self, response: Any) -> None:
        assert response <= self.story.high_watermark, "it rests on what is not committed"
        self.story.answers[self.number].append(response)

    def refuse(self, error_code: ErrorCode) -> None:
        self.story.answers[self.number].append(error_code)


class PartitionStories(RuleBasedStateMachine):
    """Requests, commits, failures, time and the end of a leadership, and loads after it."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[CoordinatorRecord] = []
        self.high_watermark = 0
        self.answers: dict[int, list[Any]] = {}
        self.abandoned: set[int] = set()
        self.parked: list[Asked] = []
        self.fails = False
        self.commits_at_once = False
        self.now = Now(0, 0)
        self.lead()

    # --- the port -------------------------------------------------------------------------------

    def append(self, decision: CoordinatorResult, now: Now) -> int:
        if self.fails:
            raise KafkaError(ErrorCode.not_enough_replicas, "for now")
        self.log += decision.records
        if self.commits_at_once:
            self.high_watermark = len(self.log)
            self.partition.committed(self.high_watermark)
        return len(self.log)

    def carry_out(self, effect: Any) -> None:
        assert effect <= self.high_watermark

    def broken(self) -> None:
        raise AssertionError("nothing breaks here")

    # --- what happens ---------------------------------------------------------------------------

    def lead(self) -> None:
        self.machine = Counting()
        self.partition = CoordinatorPartition("test", self.machine, self, WRITE_TIMEOUT_MS)
        for record in self.log:
            self.partition.replay(record, None)
        self.partition.loaded(len(self.log), self.high_watermark, EMPTY_IMAGE, self.now)

    @rule(count=st.integers(0, 3), is_parked=st.booleans(), answers_parked=st.booleans())
    def ask(self, count: int, is_parked: bool, answers_parked: bool) -> None:
        """Write some records; answer at once, or leave that to a later request."""
        token = len(self.answers)
        self.answers[token] = []

        def decide(machine: Counting, token: Any, now: Now) -> CoordinatorResult:
            after = machine.count + count
            replies = [] if is_parked else [Reply(token, after)]
            if answers_parked:
                replies += [Reply(parked, after) for parked in self.parked]
                self.parked.clear()
            if is_parked:
                self.parked.append(token)
            records = [CoordinatorRecord(TransactionLogKey(transactional_id="t"), None)] * count
            return CoordinatorResult(records, replies, effects=[after])

        self.partition.submit(Asked(token, self), decide, self.now)

    @rule(part=st.integers(0, 3))
    def commit(self, part: int) -> None:
        self.high_watermark = min(len(self.log), self.high_watermark + part)
        self.partition.committed(self.high_watermark)

    @rule(fails=st.booleans(), commits_at_once=st.booleans())
    def change(self, fails: bool, commits_at_once: bool) -> None:
        self.fails, self.commits_at_once = fails, commits_at_once

    @rule(duration_ms=st.integers(1, 60))
    def wait(self, duration_ms: int) -> None:
        self.now = Now(self.now.monotonic_ms + duration_ms, 0)
        due_ms = self.partition.next_due_ms
        self.partition.tick(self.now)
        assert due_ms is None or due_ms > self.now.monotonic_ms or self.partition.next_due_ms != due_ms

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.answers)))
        if not self.answers[token]:
            self.abandoned.add(token)
        self.partition.abandon(Asked(token, self))

    @rule(lost=st.integers(0, 2))
    def change_leader(self, lost: int) -> None:
        """Lose what was not committed, and load the rest."""
        self.partition.close()
        assert all(self.answers[token] for token in self.answers if token not in self.abandoned)
        self.parked.clear()
        del self.log[max(self.high_watermark, len(self.log) - lost) :]
        self.lead()

    @invariant()
    def nobody_is_answered_twice_or_after_hanging_up(self) -> None:
        for token, answers in self.answers.items():
            assert len(answers) <= (0 if token in self.abandoned else 1), (token, answers)

    @invariant()
    def state_is_that_of_the_log(self) -> None:
        assert self.partition.state is CoordinatorState.ACTIVE
        assert self.machine.count == len(self.log) == self.partition.end_offset

    @invariant()
    def open_requests_are_those_without_an_answer(self) -> None:
        waiting = [token for token, answers in self.answers.items() if not answers]
        assert self.partition.open_count == len([token for token in waiting if token not in self.abandoned])


TestPartitionStories = PartitionStories.TestCase
TestPartitionStories.settings = examples(30, stateful_step_count=40)
