"""The runtime of coordinators over real logs, with a machine that keeps what was committed under each key."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from sparklog.executor.coordinators.coordinator import Coordinator
from sparklog.executor.coordinators.coordinator_kind import CoordinatorKind
from sparklog.executor.coordinators.groups.api.txn_offset_commit import verify_in
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    ProducerStamp,
    Reply,
    RunInExecutor,
)
from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorState
from sparklog.executor.coordinators.records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from sparklog.executor.coordinators.records.framing import CONSUMER_OFFSETS_RECORDS
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.verification.machine.waiting_additions import TransactionOperation
from sparklog.executor.verification.transaction_verifier import TransactionOfProducer
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import PartitionChangeRecord
from sparklog.node.serving.requests import Deferred
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from tests.forked_process import in_forked_process
from tests.garbage import uncollected
from tests.unit.executor.brokers import Brokers, until, with_brokers

TOPIC = "numbers"
TURNS = 50
"""Of the loop, within which whatever waits for nothing is answered."""


class Numbers:
    """A machine whose durable state is a number under each key."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.is_loaded = False
        self.failures: list[ErrorCode] = []
        self.images: list[MetadataImage] = []
        self.next_due_ms: int | None = None
        self.due: Callable[[Now], Iterable[CoordinatorResult]] = lambda now: ()
        self.waiting: list[Any] = []

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        key, value = record
        assert isinstance(key, OffsetCommitKey)
        if value is None:
            self.numbers.pop(key.group, None)
            return
        assert isinstance(value, OffsetCommitValue)
        if value.metadata == "poison":
            raise RuntimeError("this cannot be replayed")
        target = self.numbers if producer is None else self.pending.setdefault(producer.producer_id, {})
        target[key.group] = value.offset

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        numbers = self.pending.pop(producer.producer_id, {})
        if committed:
            self.numbers.update(numbers)

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        self.is_loaded = True
        return ()

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        self.images.append(image)
        return ()

    def tick(self, now: Now) -> Iterable[CoordinatorResult]:
        self.next_due_ms = None
        yield from self.due(now)

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        self.failures.append(error)
        return None


class Runtime:
    """One broker's runtime, and every machine it made, the newest last."""

    def __init__(
        self, brokers: Brokers, broker_id: int = 0, write_timeout_ms: int = 60_000, *, leads_on: bool = False
    ) -> None:
        self.machines: list[Numbers] = []
        self.carried_out: list[Any] = []
        replicas = brokers.brokers[broker_id].replicas

        def new_machine(partition: int) -> Numbers:
            self.machines.append(Numbers())
            return self.machines[-1]

        kind = CoordinatorKind(
            topic=TOPIC,
            records=CONSUMER_OFFSETS_RECORDS,
            new_machine=new_machine,
            effects={str: lambda effect, origin: self.carried_out.append((effect, origin.partition_index))},
            write_timeout_ms=write_timeout_ms,
            load_buffer_bytes=4096,
            leads_on=leads_on,
        )
        self.runtime = CoordinatorRuntime(kind, replicas.executor, replicas.lease.obey)
        replicas.listeners.append(self.runtime)
        replicas.subscribers = (*replicas.subscribers, self.runtime)

    @property
    def machine(self) -> Numbers:
        return self.machines[-1]

    def is_active(self) -> bool:
        return self.runtime.partitions == {0: CoordinatorState.ACTIVE}

    async def until_active(self) -> None:
        await until(self.is_active, "the partition is loaded")

    def submit(self, decide: Callable[[Numbers, Any, Now], CoordinatorResult]) -> "Answer":
        return Answer(self.runtime.submit_to(0, decide, lambda error_code: error_code))

    def put(self, key: str, number: int, metadata: str = "", **decision: Any) -> "Answer":
        """Write a number under a key, and answer with it."""
        return self.submit(
            lambda machine, token, now: CoordinatorResult(
                [record(key, number, metadata)], [Reply(token, number)], **decision
            )
        )

    def get(self, key: str) -> "Answer":
        """Answer with the number under a key."""
        return self.submit(
            lambda machine, token, now: CoordinatorResult(replies=[Reply(token, machine.numbers.get(key))])
        )


class Answer:
    """What a request was answered."""

    def __init__(self, deferred: Deferred) -> None:
        self.deferred = deferred
        self.responses: list[Any] = []
        deferred.bind(self.responses.append)

    async def response(self) -> Any:
        await until(lambda: bool(self.responses), "it is answered")
        (response,) = self.responses
        return response


def record(key: str, number: int, metadata: str = "") -> CoordinatorRecord:
    return CoordinatorRecord(
        OffsetCommitKey(group=key, topic="t", partition=0),
        OffsetCommitValue(offset=number, metadata=metadata, commit_timestamp=0),
    )


def refuse_to_decide(machine: Numbers, token: Any, now: Now) -> CoordinatorResult:
    raise RuntimeError("a mistake in the machine")


@with_brokers()
async def test_runtime_answers_what_was_written_and_loads_it_again(brokers: Brokers) -> None:
    """The state after a load is the state before it, tombstones included."""
    runtime = Runtime(brokers)
    topic_id = await brokers.create_topic(TOPIC, [(0,)])
    await runtime.until_active()
    assert [await runtime.put(key, number).response() for key, number in (("a", 1), ("b", 2), ("a", 3))] == [
        1,
        2,
        3,
    ]
    tombstone = CoordinatorRecord(OffsetCommitKey(group="b", topic="t", partition=0), None)
    deleted = runtime.submit(
        lambda machine, token, now: CoordinatorResult([tombstone], [Reply(token, "gone")])
    )
    assert await deleted.response() == "gone"
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await until(lambda: len(runtime.machines) == 2 and runtime.is_active(), "it is loaded again")
    assert runtime.machines[0].numbers == runtime.machines[1].numbers == {"a": 3}


@with_brokers(count=3)
async def test_coordinator_whose_leader_leads_on_stays_and_answers_what_waits(brokers: Brokers) -> None:
    """Each move of a replica of its followers would refuse a group's commits, and load it again."""
    runtime = Runtime(brokers, leads_on=True)
    topic_id = await brokers.create_topic(TOPIC, [(0, 1, 2)])
    await runtime.until_active()
    assert await runtime.put("a", 1).response() == 1
    await brokers.stop(2)
    written = runtime.put("a", 2)
    await brokers.commit(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=(0, 1), isr=(0, 1), leader=0)
    )
    assert brokers.replica(0, topic_id).leader_epoch == 1
    assert await written.response() == 2
    assert [await runtime.put("b", 3).response(), await runtime.get("a").response()] == [3, 2]
    assert (len(runtime.machines), len(runtime.runtime.loads)) == (1, 1)


@with_brokers(count=2)
async def test_coordinator_is_loaded_again_after_another_broker_led(brokers: Brokers) -> None:
    """What the other one has written is not in its memory."""
    runtime, other = Runtime(brokers, leads_on=True), Runtime(brokers, 1, leads_on=True)
    topic_id = await brokers.create_topic(TOPIC, [(0, 1)])
    await runtime.until_active()
    await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
    await other.until_active()
    assert await other.put("a", 5).response() == 5
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    await until(lambda: len(runtime.machines) == 2 and runtime.is_active(), "it is loaded again")
    assert await runtime.get("a").response() == 5
    change = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1)
    await brokers.commit(change, PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=0))
    await until(lambda: len(runtime.machines) == 3 and runtime.is_active(), "it is loaded once more")


@with_brokers(count=2)
async def test_runtime_answers_nothing_before_the_followers_have_it(brokers: Brokers) -> None:
    """Reads wait too: they may rest on what is lost with the leader."""
    runtime = Runtime(brokers)
    await brokers.create_topic(TOPIC, [(0, 1)])
    await runtime.until_active()
    await runtime.put("a", 1).response()
    brokers.brokers[1].holds_lease = False
    await brokers.stop(1)
    written, read = runtime.put("a", 2), runtime.get("a")
    at_once = runtime.submit(
        lambda machine, token, now: CoordinatorResult(replies=[Reply(token, 7)], at_once=True)
    )
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert (written.responses, read.responses, at_once.responses) == ([], [], [7])
    assert runtime.runtime.open_count == 2
    await brokers.start(1)
    assert [await written.response(), await read.response()] == [2, 2]


@with_brokers(count=2)
async def test_read_is_answered_at_once_unless_records_are_uncommitted(brokers: Brokers) -> None:
    """A micro-batch waits for fifty of them; what rests on a record that may be lost waits for its commit."""
    runtime = Runtime(brokers)

    def read() -> Any:
        def decide(machine: Numbers, token: Any, now: Now) -> CoordinatorResult:
            return CoordinatorResult(replies=[Reply(token, machine.numbers.get("a"))])

        return runtime.runtime.read_from(0, decide, lambda error_code: error_code)

    assert await read() is ErrorCode.not_coordinator
    await brokers.create_topic(TOPIC, [(0, 1)])
    await runtime.until_active()
    await runtime.put("a", 1).response()
    assert read() == 1
    brokers.brokers[1].holds_lease = False
    await brokers.stop(1)
    written, waiting = runtime.put("a", 2), Answer(read())
    assert (written.responses, waiting.responses) == ([], [])
    await brokers.start(1)
    assert [await written.response(), await waiting.response(), read()] == [2, 2, 2]


@with_brokers(count=2)
async def test_runtime_tells_a_client_to_try_again_when_a_write_takes_too_long(brokers: Brokers) -> None:
    """Kafka's clients take COORDINATOR_NOT_AVAILABLE for that, and nothing else."""
    runtime = Runtime(brokers, write_timeout_ms=50)
    await brokers.create_topic(TOPIC, [(0, 1)])
    await runtime.until_active()
    await brokers.stop(1)
    assert await runtime.put("a", 2).response() is ErrorCode.coordinator_not_available
    assert runtime.machine.numbers == {"a": 2}, "it may be committed yet"


@with_brokers(count=2)
async def test_runtime_writes_nothing_with_too_few_replicas_in_sync(brokers: Brokers) -> None:
    """What could not be appended was never applied, and the machine hears of it."""
    runtime = Runtime(brokers)
    topic_id = await brokers.create_topic(TOPIC, [(0, 1)], {"min.insync.replicas": "2"})
    await runtime.until_active()
    await brokers.stop(1)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await until(lambda: len(runtime.machines) == 2 and runtime.is_active(), "it is loaded again")
    assert await runtime.put("a", 2).response() is ErrorCode.coordinator_not_available
    assert (runtime.machine.numbers, runtime.machine.failures) == ({}, [ErrorCode.coordinator_not_available])
    assert brokers.replica(0, topic_id).log.log_end_offset == 0


@with_brokers(count=2)
async def test_runtime_sends_those_who_wait_elsewhere_when_another_leads(brokers: Brokers) -> None:
    """Whether what they asked for was done, the next coordinator knows."""
    runtime = Runtime(brokers)
    topic_id = await brokers.create_topic(TOPIC, [(0, 1)])
    await runtime.until_active()
    waiting = runtime.submit(lambda machine, token, now: CoordinatorResult())
    await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
    assert waiting.responses == [ErrorCode.not_coordinator]
    assert runtime.get("a").responses == [ErrorCode.not_coordinator]
    assert (runtime.runtime.partitions, runtime.runtime.open_count) == ({}, 0)


@with_brokers()
async def test_runtime_without_its_lease_is_silent_and_loads_anew_afterwards(brokers: Brokers) -> None:
    """Another may coordinate meanwhile; and sessions that nobody could prolong must not run out."""
    runtime = Runtime(brokers)
    await brokers.create_topic(TOPIC, [(0,)])
    await runtime.until_active()
    await runtime.put("a", 1).response()
    waiting = runtime.submit(lambda machine, token, now: CoordinatorResult())
    broker = brokers.brokers[0]
    broker.holds_lease = False
    broker.replicas.lease.obey()
    assert waiting.responses == runtime.get("a").responses == [ErrorCode.not_coordinator]
    assert not runtime.runtime.is_complete()
    broker.holds_lease = True
    broker.replicas.lease.obey()
    assert runtime.runtime.is_complete()
    assert runtime.get("a").responses == [ErrorCode.coordinator_load_in_progress]
    await runtime.until_active()
    assert await runtime.get("a").response() == 1
    assert len(runtime.machines) == 2


@with_brokers()
async def test_runtime_whose_lease_runs_out_while_it_loads_counts_no_load(brokers: Brokers) -> None:
    """What was read is thrown away: a time of it in the metrics would be that of a load that never served."""
    runtime = Runtime(brokers)
    broker = brokers.brokers[0]
    broker.holds_lease = False
    await brokers.create_topic(TOPIC, [(0,)])
    await until(lambda: bool(runtime.machines), "its load began")
    await until(lambda: runtime.runtime.partitions == {}, "its lease is found to have run out")
    assert (list(runtime.runtime.loads), runtime.machine.is_loaded) == ([], False)


@with_brokers(count=2)
async def test_runtime_that_leads_in_another_epoch_says_nothing_as_of_the_one_before(
    brokers: Brokers,
) -> None:
    """A leader commits as it begins an epoch; the coordinator of the epoch before has no say any more."""
    runtime = Runtime(brokers)
    topic_id = await brokers.create_topic(TOPIC, [(0, 1)])
    await runtime.until_active()
    await brokers.stop(1)
    written = runtime.put("a", 2)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    assert await written.response() is ErrorCode.not_coordinator
    await runtime.until_active()
    assert await runtime.get("a").response() == 2


@with_brokers()
async def test_runtime_of_a_machine_that_cannot_decide_goes_on(brokers: Brokers) -> None:
    """A mistake costs the request that met it, and nothing else."""
    runtime = Runtime(brokers)
    await brokers.create_topic(TOPIC, [(0,)])
    await runtime.until_active()
    logging.disable(logging.ERROR)
    try:
        assert await runtime.submit(refuse_to_decide).response() is ErrorCode.unknown_server_error
    finally:
        logging.disable(logging.NOTSET)
    assert await runtime.put("a", 1).response() == 1
    assert len(runtime.machines) == 1


@with_brokers()
async def test_runtime_of_a_machine_that_cannot_replay_loads_again_and_is_silent(
    brokers: Brokers,
) -> None:
    """Half of a batch applied would be a state that no log has."""
    runtime = Runtime(brokers)
    topic_id = await brokers.create_topic(TOPIC, [(0,)])
    await runtime.until_active()
    logging.disable(logging.ERROR)
    try:
        assert await runtime.put("a", 1, "poison").response() is ErrorCode.not_coordinator
        await until(lambda: len(runtime.machines) == 2 and not runtime.runtime.partitions, "it failed again")
    finally:
        logging.disable(logging.NOTSET)
    assert runtime.get("a").responses == [ErrorCode.not_coordinator]
    assert brokers.replica(0, topic_id).leadership is not None


@with_brokers()
async def test_runtime_refuses_an_id_that_no_record_can_name(brokers: Brokers) -> None:
    """To hash a hundred megabytes would take seconds of the loop."""
    runtime = Runtime(brokers)
    answer = Answer(runtime.runtime.submit("g" * 32_768, refuse_to_decide, lambda error_code: error_code))
    assert answer.responses == [ErrorCode.invalid_request]
    replicas = brokers.brokers[0].replicas
    verify = verify_in(replicas.table, replicas.transaction_verifier)
    transaction = TransactionOfProducer("t", 1, 0, TransactionOperation.ADD_PARTITION)
    assert in_one_go(verify("g" * 32_768, transaction)) == (None, ErrorCode.invalid_request)


@with_brokers()
async def test_runtime_forgets_a_request_whose_connection_is_lost(brokers: Brokers) -> None:
    """Whoever joins and leaves all day must not fill the memory with those that wait."""
    runtime = Runtime(brokers)
    await brokers.create_topic(TOPIC, [(0,)])
    await runtime.until_active()

    def wait(machine: Numbers, token: Any, now: Now) -> CoordinatorResult:
        machine.waiting.append(token)
        return CoordinatorResult()

    abandoned = runtime.submit(wait)
    abandoned.deferred.abandon()
    assert runtime.runtime.open_count == 0
    token = runtime.machine.waiting[0]
    later = runtime.submit(
        lambda machine, own, now: CoordinatorResult(replies=[Reply(token, 1), Reply(own, 2)])
    )
    assert (await later.response(), abandoned.responses) == (2, [])


@with_brokers()
async def test_runtime_has_heavy_work_done_beside_the_loop(brokers: Brokers) -> None:
    """A regular expression over ten thousand topics must not stop the heartbeats."""
    runtime = Runtime(brokers)
    await brokers.create_topic(TOPIC, [(0,)])
    await runtime.until_active()

    def decide(machine: Numbers, token: Any, now: Now) -> CoordinatorResult:
        def found(result: Any, now: Now) -> CoordinatorResult:
            return CoordinatorResult([record("a", result)], [Reply(token, result)])

        return CoordinatorResult(effects=[RunInExecutor(lambda: 6 * 7, found), "tell somebody"])

    assert await runtime.submit(decide).response() == 42
    assert (runtime.machine.numbers, runtime.carried_out) == ({"a": 42}, [("tell somebody", 0)])


@with_brokers()
async def test_runtime_tells_the_time_when_something_is_due(brokers: Brokers) -> None:
    """Sessions run out without anybody asking."""
    runtime = Runtime(brokers)
    await brokers.create_topic(TOPIC, [(0,)])
    await runtime.until_active()

    def decide(machine: Numbers, token: Any, now: Now) -> CoordinatorResult:
        machine.next_due_ms = now.monotonic_ms + 20
        machine.due = lambda later: [
            CoordinatorResult([record("a", 1)]),
            CoordinatorResult(replies=[Reply(token, later.monotonic_ms - now.monotonic_ms)]),
        ]
        return CoordinatorResult()

    assert await runtime.submit(decide).response() >= 20
    assert runtime.machine.numbers == {"a": 1}


@with_brokers(config={"transaction.partition.verification.enable": "false"})
async def test_runtime_keeps_what_a_transaction_wrote_until_its_marker(brokers: Brokers) -> None:
    """Offsets of a transaction appear with it or never, after a load as before it."""
    runtime = Runtime(brokers)
    topic_id = await brokers.create_topic(TOPIC, [(0,)])
    await runtime.until_active()
    committing, aborting = ProducerStamp(7, 0), ProducerStamp(8, 0)
    assert await runtime.put("a", 1, producer=committing).response() == 1
    assert await runtime.put("b", 2, producer=aborting).response() == 2
    assert runtime.machine.numbers == {}
    told: list[ErrorCode] = []
    for (producer_id, producer_epoch), committed in ((committing, True), (aborting, False)):
        end = EndTransactionMarker(
            producer_id, producer_epoch, committed, coordinator_epoch=0, transaction_version=1
        )
        runtime.runtime.complete_transaction(0, end, told.append)
    await until(lambda: len(told) == 2, "both markers are committed")
    assert (told, runtime.machine.numbers) == ([ErrorCode.none] * 2, {"a": 1})
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await until(lambda: len(runtime.machines) == 2 and runtime.is_active(), "it is loaded again")
    assert (runtime.machine.numbers, runtime.machine.pending) == ({"a": 1}, {})


@in_forked_process
@with_brokers()
async def test_coordinator_that_has_ended_is_no_garbage(brokers: Brokers) -> None:
    """It has its replica, and that the files of a partition that went elsewhere."""
    runtime = Runtime(brokers)
    with uncollected(Coordinator) as left:
        await brokers.create_topic(TOPIC, [(0,)])
        await runtime.until_active()
        assert await runtime.put("a", 1).response() == 1
        (coordinator,) = left()
        runtime.runtime.stopped(coordinator.replica)
        del coordinator
        await until(lambda: not left(), "nobody has it")
