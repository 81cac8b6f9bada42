"""The partition, over a log that is a list: the order of replies and effects, under every failure."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest

from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    ProducerStamp,
    Reply,
)
from sparklog.executor.coordinators.machine.coordinator_partition import (
    MAX_OPEN_TOKENS,
    MAX_WAITING_FOR_OTHERS,
    CoordinatorPartition,
    CoordinatorState,
)
from sparklog.executor.coordinators.records.transaction_state import TransactionLogKey
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.protocol.errors import ErrorCode, KafkaError

WRITE_TIMEOUT_MS = 100


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What a test has raised on purpose is not to be shown."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class Machine:
    """Notes what it is told; its decisions are the test's."""

    def __init__(self) -> None:
        self.replayed: list[str] = []
        self.ended: list[tuple[ProducerStamp, bool]] = []
        self.failed: list[ErrorCode] = []
        self.follow_up: CoordinatorResult | None = None
        self.poison: str | None = None
        self.next_due_ms: int | None = None
        self.due: Callable[[Now], Iterable[CoordinatorResult]] = lambda now: ()
        self.changed: Callable[[], Iterable[CoordinatorResult]] = lambda: ()

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        assert isinstance(record.key, TransactionLogKey)
        if record.key.transactional_id == self.poison:
            raise RuntimeError("poison")
        self.replayed.append(record.key.transactional_id)

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        self.ended.append((producer, committed))

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        return ()

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        return self.changed()

    def tick(self, now: Now) -> Iterable[CoordinatorResult]:
        return self.due(now)

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        self.failed.append(error)
        return self.follow_up


class Log:
    """A port to a log in memory; whoever is told may say what is to happen then."""

    def __init__(self) -> None:
        self.partition: CoordinatorPartition
        self.appended: list[str] = []
        self.error: Exception | None = None
        self.commits_at_once = False
        self.told: list[Any] = []
        self.on_sent: Callable[[], None] = lambda: None
        self.broken_count = 0

    def append(self, decision: CoordinatorResult, now: Now) -> int:
        if self.error is not None:
            raise self.error
        self.appended += [key.transactional_id for key, _ in decision.records]  # type: ignore[attr-defined]
        if self.commits_at_once:
            self.partition.committed(len(self.appended))
        return len(self.appended)

    def carry_out(self, effect: Any) -> None:
        self.told.append(effect)

    def broken(self) -> None:
        self.broken_count += 1


class Asked:
    """A request, which notes its answer in the log's order of events. Those of one name are one."""

    def __init__(self, name: object, log: Log) -> None:
        self.name = name
        self.log = log

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def answer(self, response: Any) -> None:
        self.log.told.append((self.name, response))
        self.log.on_sent()

    def refuse(self, error_code: ErrorCode) -> None:
        self.answer(error_code)


class Scene:
    """A partition that is loaded and empty."""

    def __init__(self, *, is_loaded: bool = True) -> None:
        self.machine, self.log = Machine(), Log()
        self.partition = self.log.partition = CoordinatorPartition(
            "test", self.machine, self.log, WRITE_TIMEOUT_MS
        )
        self.now = Now(1000, 5000)
        if is_loaded:
            self.partition.loaded(0, 0, EMPTY_IMAGE, self.now)

    def asked(self, name: object) -> Asked:
        return Asked(name, self.log)

    def submit(
        self, name: object, decide: Callable[[Any, Any, Now], CoordinatorResult], **fields: Any
    ) -> None:
        self.partition.submit(self.asked(name), decide, self.now, **fields)

    def decide(self, name: str, *ids: str, **fields: Any) -> None:
        """Have a request decided about by writing under these ids."""
        self.submit(name, lambda machine, token, now: write(*ids, token=token, **fields))

    def pass_time(self, duration_ms: int) -> None:
        self.now = Now(self.now.monotonic_ms + duration_ms, self.now.wall_ms + duration_ms)
        self.partition.tick(self.now)


def write(*ids: str, token: Asked | None = None, **fields: Any) -> CoordinatorResult:
    """Write under these ids, and answer the token with the last one."""
    records = [CoordinatorRecord(TransactionLogKey(transactional_id=each), None) for each in ids]
    replies = [] if token is None else [Reply(token, ids[-1] if ids else None)]
    return CoordinatorResult(records, replies, **fields)


def fail(error: Exception) -> Callable[[Any, Any, Now], CoordinatorResult]:
    def decide(machine: Any, token: Any, now: Now) -> CoordinatorResult:
        raise error

    return decide


def test_partition_tells_in_order_what_is_committed_and_no_more() -> None:
    """An answer before the commit is one that the next leader may know nothing of."""
    scene = Scene()
    scene.decide("1", "a", effects=["effect of 1"])
    scene.decide("2")  # rests on what 1 wrote
    scene.decide("3", "b", "c")
    assert (scene.machine.replayed, scene.log.told) == (["a", "b", "c"], [])
    scene.partition.committed(2)
    assert scene.log.told == [("1", "a"), "effect of 1", ("2", None)]
    scene.partition.committed(3)
    assert scene.log.told[3:] == [("3", "c")]
    scene.decide("4")
    assert scene.log.told[4:] == [("4", None)]


def test_partition_whose_append_commits_at_once_replays_before_it_answers() -> None:
    """With one replica the high watermark moves within the append, before the machine knows of it."""
    scene = Scene()
    scene.log.commits_at_once = True
    replayed_then: list[list[str]] = []
    scene.log.on_sent = lambda: replayed_then.append(list(scene.machine.replayed))
    scene.decide("1", "a")
    assert (scene.log.told, replayed_then) == ([("1", "a")], [["a"]])


def test_partition_asked_again_by_whom_it_answers_does_not_interrupt_the_machine() -> None:
    """The next request of a connection is handled within its last answer."""
    scene = Scene()
    scene.log.commits_at_once = True
    order: list[str] = []

    def changed() -> Iterator[CoordinatorResult]:
        for each in ("a", "b"):
            yield write(each, token=scene.asked(each))
            order.append(f"decided {each}")

    def ask_again() -> None:
        if len(scene.log.told) == 1:
            scene.decide("again", "c")
            order.append("asked again")

    scene.machine.changed = changed
    scene.log.on_sent = ask_again
    for token in ("a", "b"):
        scene.submit(token, lambda machine, token, now: CoordinatorResult())
    scene.partition.metadata_changed(EMPTY_IMAGE, MetadataDelta(), scene.now)
    assert order == ["decided a", "decided b", "asked again"]
    assert sorted(scene.log.told) == [("a", "a"), ("again", "c"), ("b", "b")]


def test_partition_that_cannot_append_changes_nothing_and_says_why() -> None:
    """The machine puts right what is volatile, and may answer others that waited for it."""
    scene = Scene()
    scene.submit("waits", lambda machine, token, now: CoordinatorResult())
    scene.machine.follow_up = CoordinatorResult(replies=[Reply(scene.asked("waits"), "no more")])
    scene.log.error = KafkaError(ErrorCode.not_enough_replicas, "one of three")
    scene.decide("1", "a")
    assert scene.machine.replayed == []
    assert scene.machine.failed == [ErrorCode.coordinator_not_available]
    assert scene.log.told == [("1", ErrorCode.coordinator_not_available), ("waits", "no more")]


@pytest.mark.parametrize(
    ("error_code", "told"),
    [
        (ErrorCode.not_leader_or_follower, ErrorCode.not_coordinator),
        (ErrorCode.kafka_storage_error, ErrorCode.not_coordinator),
        (ErrorCode.message_too_large, ErrorCode.unknown_server_error),
        (ErrorCode.record_list_too_large, ErrorCode.unknown_server_error),
        (ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_epoch),
    ],
)
def test_partition_tells_of_the_logs_errors_as_kafkas_coordinator_does(
    error_code: ErrorCode, told: ErrorCode
) -> None:
    """Clients look for the coordinator again on some codes, and give up on others."""
    scene = Scene()
    scene.log.error = KafkaError(error_code, "no")
    scene.decide("1", "a")
    assert scene.log.told == [("1", told)]


def test_partition_whose_machine_cannot_decide_answers_that_one_and_goes_on() -> None:
    """Named errors are answered as they are, mistakes with UNKNOWN_SERVER_ERROR."""
    scene = Scene()
    scene.submit("1", fail(RuntimeError("a mistake")))
    scene.submit("2", fail(KafkaError(ErrorCode.group_id_not_found, "no")))
    scene.decide("3")
    assert scene.log.told == [
        ("1", ErrorCode.unknown_server_error),
        ("2", ErrorCode.group_id_not_found),
        ("3", None),
    ]
    assert scene.partition.open_count == 0


def test_partition_that_cannot_replay_ends_and_answers_everybody() -> None:
    """Nothing goes on half-applied."""
    scene = Scene()
    scene.decide("1", "a")
    scene.machine.poison = "b"
    scene.decide("2", "b", "c")
    assert (scene.partition.state, scene.log.broken_count) == (CoordinatorState.CLOSED, 1)
    assert scene.log.told == [("1", ErrorCode.not_coordinator), ("2", ErrorCode.not_coordinator)]
    scene.decide("3")
    scene.partition.committed(9)
    assert scene.log.told[2:] == [("3", ErrorCode.not_coordinator)]


def test_partition_that_does_not_know_whether_it_appended_ends() -> None:
    """What is in the log and not in the machine would be there after a load, and nowhere before."""
    scene = Scene()
    scene.log.error = RuntimeError("in the middle of it")
    scene.decide("1", "a")
    assert (scene.partition.state, scene.log.broken_count) == (CoordinatorState.CLOSED, 1)
    assert scene.log.told == [("1", ErrorCode.not_coordinator)]


def test_partition_one_of_whose_answers_goes_wrong_gives_the_others() -> None:
    """A connection that fails in the middle of a turn must not take the answers of others with it."""
    scene = Scene()

    def fail_once() -> None:
        scene.log.on_sent = lambda: None
        raise RuntimeError("the connection breaks")

    scene.decide("a", "1")
    scene.decide("b", "2")
    scene.log.on_sent = fail_once
    scene.partition.committed(2)
    assert scene.log.told == [("a", "1"), ("b", "2")]
    scene.decide("c", "3")
    scene.decide("d", "4")
    scene.log.on_sent = fail_once
    scene.partition.close()
    refusals = [("c", ErrorCode.not_coordinator), ("d", ErrorCode.not_coordinator)]
    assert scene.log.told[2:] == refusals


def test_partition_loading_refuses_and_closed_refuses_otherwise() -> None:
    """A client waits for the one and looks elsewhere for the other."""
    scene = Scene(is_loaded=False)
    scene.decide("1", "a")
    scene.partition.append_marker(ProducerStamp(1, 0), True, lambda: 1, scene.asked("2"), scene.now)
    scene.partition.close()
    scene.decide("3", "a")
    assert scene.log.told == [
        ("1", ErrorCode.coordinator_load_in_progress),
        ("2", ErrorCode.coordinator_load_in_progress),
        ("3", ErrorCode.not_coordinator),
    ]
    assert (scene.log.appended, scene.machine.ended) == ([], [])


def test_partition_tells_its_machine_after_the_load_how_the_cluster_has_changed_meanwhile() -> None:
    """A topic that is deleted during a load would keep its offsets until they expire."""
    scene = Scene(is_loaded=False)
    heard: list[tuple[MetadataImage, MetadataDelta]] = []
    scene.machine.metadata_changed = lambda image, delta, now: heard.append((image, delta)) or ()  # type: ignore
    deltas = [MetadataDelta(deleted_topics={UUID(int=number): "topic"}) for number in (1, 2)]
    for delta in deltas:
        scene.partition.metadata_changed(EMPTY_IMAGE, delta, scene.now)
    newest = MetadataImage()
    assert heard == []
    scene.partition.loaded(0, 0, newest, scene.now)
    assert [(image is newest, delta) for image, delta in heard] == [(True, delta) for delta in deltas]


def test_partition_loaded_beyond_the_high_watermark_answers_when_that_is_committed() -> None:
    """What the last leader wrote and acknowledged to nobody may be lost with this one."""
    scene = Scene(is_loaded=False)
    scene.partition.loaded(5, 3, EMPTY_IMAGE, scene.now)
    scene.decide("1")
    scene.decide("2", at_once=True)
    assert scene.log.told == [("2", None)]
    scene.partition.committed(5)
    assert scene.log.told[1:] == [("1", None)]


def test_partition_answers_writes_that_take_too_long_and_still_carries_their_effects_out() -> None:
    """They may be committed later; whoever is to be told of a transaction must hear of it then."""
    scene = Scene()
    scene.decide("1", "a", effects=["send markers"])
    assert scene.partition.next_due_ms == scene.now.monotonic_ms + WRITE_TIMEOUT_MS
    scene.pass_time(WRITE_TIMEOUT_MS - 1)
    assert scene.log.told == []
    scene.pass_time(1)
    assert scene.log.told == [("1", ErrorCode.coordinator_not_available)]
    assert (scene.partition.next_due_ms, scene.partition.open_count) == (None, 0)
    scene.partition.committed(1)
    assert scene.log.told[1:] == ["send markers"]


def test_partition_answers_nobody_twice_and_nobody_who_is_gone() -> None:
    """The machine may name a request that has been answered, or whose connection is lost."""
    scene = Scene()
    scene.submit("gone", lambda machine, token, now: CoordinatorResult())
    scene.partition.abandon(scene.asked("gone"))
    scene.decide("1")
    scene.partition.decide(
        lambda machine: [
            CoordinatorResult(replies=[Reply(scene.asked("gone"), 1), Reply(scene.asked("1"), 2)])
        ],
        scene.now,
    )
    assert (scene.log.told, scene.partition.open_count) == ([("1", None)], 0)


def test_partition_with_too_many_requests_that_wait_takes_no_more() -> None:
    """Memory is bounded, whatever clients do."""
    scene = Scene()
    for token in range(MAX_OPEN_TOKENS):
        scene.submit(token, lambda machine, token, now: CoordinatorResult())
    scene.decide("1")
    assert scene.log.told == [("1", ErrorCode.coordinator_not_available)]


def test_requests_that_wait_for_other_clients_leave_room_for_those_that_do_not() -> None:
    """Members who join wait for as long as they like; the heartbeats and commits of others must not."""
    scene = Scene()
    for token in range(MAX_WAITING_FOR_OTHERS + 1):
        scene.submit(token, lambda machine, token, now: CoordinatorResult(), waits_for_others=True)
    scene.decide("1")
    refused, answered = scene.log.told
    assert refused == (MAX_WAITING_FOR_OTHERS, ErrorCode.coordinator_not_available)
    assert answered == ("1", None)


def test_partition_obeys_a_marker_and_says_so_when_it_is_committed() -> None:
    """The transaction is over for its coordinator only when no leader can forget that."""
    scene = Scene()
    stamp = ProducerStamp(7, 1)
    scene.partition.append_marker(stamp, True, lambda: 1, scene.asked("1"), scene.now)
    assert (scene.machine.ended, scene.log.told) == ([(stamp, True)], [])
    scene.partition.committed(1)
    assert scene.log.told == [("1", None)]

    def refused() -> int:
        raise KafkaError(ErrorCode.transaction_coordinator_fenced, "an older one")

    scene.partition.append_marker(stamp, False, refused, scene.asked("2"), scene.now)
    assert scene.log.told[1:] == [("2", ErrorCode.transaction_coordinator_fenced)]
    assert len(scene.machine.ended) == 1


def test_partition_whose_machine_has_always_something_due_is_left_alone_for_a_while() -> None:
    """A mistake there must not keep the loop from everything else."""
    scene = Scene()
    scene.machine.next_due_ms = 0

    def raises(now: Now) -> Iterable[CoordinatorResult]:
        raise RuntimeError("a mistake")

    scene.machine.due = raises
    scene.pass_time(1)
    due_ms = scene.partition.next_due_ms
    assert due_ms is not None and due_ms > scene.now.monotonic_ms
    scene.decide("1")
    assert scene.log.told == [("1", None)]


def test_thousands_of_effects_each_of_which_has_the_machine_decide_are_all_carried_out() -> None:
    """The markers of deleted partitions are done with at once; what was told too deep down was lost."""
    scene = Scene()
    carry_out = scene.log.carry_out

    def come_back(effect: str) -> None:
        carry_out(effect)
        if not effect.startswith("after"):
            scene.partition.decide(lambda machine: [write(effect, effects=[f"after {effect}"])], scene.now)

    scene.log.carry_out = come_back  # type: ignore[method-assign]
    scene.log.commits_at_once = True
    effects = [str(number) for number in range(5_000)]
    scene.partition.decide(lambda machine: [write("all", effects=effects)], scene.now)
    assert scene.log.told == [*effects, *(f"after {each}" for each in effects)]
    assert scene.machine.replayed == ["all", *effects]
