"""Transactions over real brokers in one process: requests, markers in partitions, answers by version."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.add_offsets_to_txn.v4 import AddOffsetsToTxnRequest
from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest as AddPartitions3
from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnTopic as Topic3
from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.describe_transactions.v0 import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import TopicData
from kio.schema.end_txn.v1 import EndTxnRequest as EndTxn1
from kio.schema.end_txn.v4 import EndTxnRequest as EndTxn4
from kio.schema.end_txn.v5 import EndTxnRequest
from kio.schema.init_producer_id.v3 import InitProducerIdRequest as InitProducerId3
from kio.schema.init_producer_id.v5 import InitProducerIdRequest
from kio.schema.list_transactions.v2 import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import TransactionState as Listed

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.transactions.api import add_partitions_to_txn
from sparklog.node.calling.channel import Channel
from sparklog.node.metadata.schemas import FeatureLevelRecord, PartitionChangeRecord
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.protocol.codec.described_transactions import TransactionState
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, produce, rows

NONE = ErrorCode.none
CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}


async def begin(brokers: Brokers, replicas: Sequence[Sequence[int]] = ((0,),)) -> tuple[UUID, UUID]:
    """Make the coordinators' topic, led by broker 0, and a topic `t`; return their ids."""
    await brokers.commit(FeatureLevelRecord(name="transaction.version", feature_level=2))
    state_id = await brokers.create_topic(TRANSACTION_STATE_TOPIC, [tuple(range(brokers.count))])
    topic_id = await brokers.create_topic("t", replicas)
    return state_id, topic_id


async def loaded(brokers: Brokers, broker_id: int = 0) -> Channel:
    """Return a connection to a broker whose coordinator is loaded."""
    runtime = brokers.brokers[broker_id].replicas.coordinators.transactions.runtime
    await until(
        lambda: [state.name for state in runtime.partitions.values()] == ["ACTIVE"], "the coordinator loaded"
    )
    return await brokers.connect(broker_id)


async def init(
    channel: Channel,
    transactional_id: str | None = "a",
    timeout_ms: int = 60_000,
    producer: ProducerStamp = ProducerStamp(-1, -1),  # noqa: B008
    request_type: type[Any] = InitProducerIdRequest,
) -> tuple[ErrorCode, ProducerStamp]:
    """Ask for a producer."""
    response = await channel.request(
        request_type(
            transactional_id=transactional_id,
            transaction_timeout=timedelta(milliseconds=timeout_ms),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
        )
    )
    return response.error_code, ProducerStamp(response.producer_id, response.producer_epoch)


async def end(
    channel: Channel,
    producer: ProducerStamp,
    committed: bool = True,
    request_type: type[Any] = EndTxnRequest,
) -> tuple[ErrorCode, ProducerStamp | None]:
    """Commit or abort; return what the producer is from now on, if that is told."""
    response = await channel.request(
        request_type(
            transactional_id="a",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
    )
    if request_type is not EndTxnRequest:
        return response.error_code, None
    return response.error_code, ProducerStamp(response.producer_id, response.producer_epoch)


async def add3(channel: Channel, producer: ProducerStamp, topic: str, *partitions: int) -> list[ErrorCode]:
    """Add partitions as an older client does."""
    response = await channel.request(
        AddPartitions3(
            v3_and_below_transactional_id="a",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=(Topic3(name=topic, partitions=partitions),),
        )
    )
    (result,) = response.results_by_topic_v3_and_below
    return [each.partition_error_code for each in result.results_by_partition]


def state_of(brokers: Brokers, broker_id: int, topic_id: UUID, partition: int = 0) -> tuple[int, int]:
    """Return the last stable offset and the log end offset of a partition."""
    replica = brokers.replica(broker_id, topic_id, partition)
    return replica.last_stable_offset, replica.log.log_end_offset


async def write(channel: Channel, topic_id: UUID, producer: ProducerStamp, sequence: int = 0) -> ErrorCode:
    """Write a transactional batch to partition 0."""
    records = batch(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )
    response = await channel.request(produce(topic_id, records, transactional_id="a"))
    error_code: ErrorCode = rows(response)[0].error_code
    return error_code


@with_brokers(count=2, config=CONFIG)
async def test_transaction_is_written_and_committed_on_another_broker(brokers: Brokers) -> None:
    """The whole way: the leader asks the coordinator, the coordinator sends the leader its marker."""
    _, topic_id = await begin(brokers, [(1, 0)])
    coordinator = await loaded(brokers)
    leader = await brokers.connect(1)
    error_code, producer = await init(coordinator)
    assert error_code is NONE
    for number in range(3):
        # A new transaction finds the last one's markers written, or is told to try again.
        while (error_code := await write(leader, topic_id, producer)) is not NONE:
            assert error_code is ErrorCode.concurrent_transactions
        stable, log_end = state_of(brokers, 1, topic_id)
        assert stable == log_end - 1 == 2 * number
        error_code, bumped = await end(coordinator, producer, committed=number != 1)
        assert error_code is NONE and bumped == producer._replace(producer_epoch=number + 1)
        producer = bumped
        await until(lambda: len(set(state_of(brokers, 1, topic_id))) == 1, "the marker replicated")
    assert state_of(brokers, 1, topic_id) == (6, 6)


@with_brokers(config=CONFIG)
async def test_older_client_names_partitions_first_and_keeps_its_epoch(brokers: Brokers) -> None:
    """Clients of before KIP-890, librdkafka among them."""
    _, topic_id = await begin(brokers, [(0,), (0,)])
    channel = await loaded(brokers)
    _, producer = await init(channel)
    assert await add3(channel, producer, "t", 0, 1) == [NONE, NONE]
    assert await end(channel, producer, request_type=EndTxn4) == (NONE, None)
    await until(lambda: state_of(brokers, 0, topic_id, 1) == (1, 1), "the marker written")
    while (codes := await add3(channel, producer, "t", 0)) != [NONE]:
        assert codes == [ErrorCode.concurrent_transactions]
    stale = producer._replace(producer_epoch=9)
    assert await add3(channel, stale, "t", 0) == [ErrorCode.producer_fenced]
    assert (await end(channel, stale, request_type=EndTxn4))[0] is ErrorCode.producer_fenced
    assert (await end(channel, stale, request_type=EndTxn1))[0] is ErrorCode.invalid_producer_epoch
    assert (await init(channel, producer=stale))[0] is ErrorCode.producer_fenced
    older = await init(channel, producer=stale, request_type=InitProducerId3)
    assert older[0] is ErrorCode.invalid_producer_epoch


@with_brokers()
async def test_partition_that_cannot_be_added_keeps_the_others_out(brokers: Brokers) -> None:
    """All or nothing begins here: a transaction is not to have half of what was named."""
    await begin(brokers)
    channel = await loaded(brokers)
    _, producer = await init(channel)
    assert await add3(channel, producer, "t", 0, 7) == [
        ErrorCode.operation_not_attempted,
        ErrorCode.unknown_topic_or_partition,
    ]
    internal = await add3(channel, producer, TRANSACTION_STATE_TOPIC, 0)
    assert internal == [ErrorCode.topic_authorization_failed]
    response = await channel.request(ListTransactionsRequest())
    assert [state.transaction_state for state in response.transaction_states] == ["Empty"]


@with_brokers()
async def test_transactions_are_not_listed_while_a_partition_has_no_coordinator(brokers: Brokers) -> None:
    """Tools delete, or take for ended, what an answer without an error leaves out."""
    state_id, _ = await begin(brokers)
    channel = await loaded(brokers)
    await init(channel)
    broker = brokers.brokers[0]
    broker.holds_lease = False
    without_lease = await channel.request(ListTransactionsRequest())
    broker.holds_lease = True
    broker.replicas.lease.obey()
    await loaded(brokers)
    assert len((await channel.request(ListTransactionsRequest())).transaction_states) == 1
    await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=state_id, leader=-1))
    without_leader = await channel.request(ListTransactionsRequest())
    for response in (without_lease, without_leader):
        assert response.error_code is ErrorCode.coordinator_not_available


@with_brokers()
async def test_brokers_verify_and_add_for_many_transactions_at_once(brokers: Brokers) -> None:
    """One request for all that begin on a broker, each answered for itself."""
    await begin(brokers, [(0,), (0,)])
    channel = await loaded(brokers)
    _, first = await init(channel, "a")
    _, second = await init(channel, "b")

    assert await ask(channel, transaction("a", first, False, 0), transaction("b", second, True, 0)) == {
        "a": [NONE],
        "b": [ErrorCode.transaction_abortable],
    }
    assert await ask(channel, transaction("a", first, True, 0, 1)) == {
        "a": [NONE, ErrorCode.transaction_abortable]
    }
    assert await ask(channel, transaction("c", second, True, 0)) == {
        "c": [ErrorCode.invalid_producer_id_mapping]
    }
    assert await ask(channel, transaction("", second, True, 0)) == {"": [ErrorCode.invalid_request]}


@with_brokers(count=2)
async def test_brokers_are_answered_about_the_others_when_one_transaction_s_records_do_not_commit(
    brokers: Brokers,
) -> None:
    """A follower that stood still for 30 s held all transactions of a coordinator up for as long."""
    await brokers.commit(FeatureLevelRecord(name="transaction.version", feature_level=2))
    # In the order of the partitions.
    prompt, stuck = "b", "a"
    await brokers.create_topic(TRANSACTION_STATE_TOPIC, [(0,), (0, 1)])
    await brokers.create_topic("t", [(0,)])
    runtime = brokers.brokers[0].replicas.coordinators.transactions.runtime
    await until(
        lambda: [state.name for state in runtime.partitions.values()] == ["ACTIVE"] * 2, "the coordinators"
    )
    channel = await brokers.connect(0)
    producers = {name: (await init(channel, name))[1] for name in (stuck, prompt)}
    await brokers.stop(1)
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(add_partitions_to_txn, "BROKERS_WAIT_S", 0.2)
        assert await ask(channel, *(transaction(*each, False, 0) for each in producers.items())) == {
            stuck: [ErrorCode.coordinator_not_available],
            prompt: [NONE],
        }


def transaction(of: str, producer: ProducerStamp, verify_only: bool, *partitions: int) -> Any:
    """What a broker asks about partitions of `t`."""
    return AddPartitionsToTxnTransaction(
        transactional_id=of,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=(AddPartitionsToTxnTopic(name="t", partitions=partitions),),
    )


async def ask(channel: Channel, *transactions: Any) -> dict[str, list[ErrorCode]]:
    """Return what a broker is told of its transactions' partitions."""
    response = await channel.request(AddPartitionsToTxnRequest(transactions=transactions))
    assert response.error_code is NONE
    return {
        result.transactional_id: [
            partition.partition_error_code
            for topic in result.topic_results
            for partition in topic.results_by_partition
        ]
        for result in response.results_by_transaction
    }


@with_brokers(config=CONFIG)
async def test_open_transaction_is_described_and_listed(brokers: Brokers) -> None:
    """What an operator sees of a transaction that hangs."""
    _, topic_id = await begin(brokers)
    channel = await loaded(brokers)
    _, producer = await init(channel)
    await init(channel, "b")
    before = datetime.now(UTC)
    assert await write(channel, topic_id, producer) is NONE

    async def described(transactional_id: str) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))
        (state,) = (await channel.request(request)).transaction_states
        assert isinstance(state, TransactionState)
        return state

    async def listed(**filters: Any) -> Any:
        response = await channel.request(ListTransactionsRequest(**filters))
        assert response.error_code is NONE
        return [each.transactional_id for each in response.transaction_states], response.unknown_state_filters

    state = await described("a")
    assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Ongoing", *producer)
    assert state.topics == (TopicData(topic="t", partitions=(0,)),)
    assert state.transaction_start_time is not None
    assert before - timedelta(seconds=1) < state.transaction_start_time
    assert (await described("x")).error_code is ErrorCode.transactional_id_not_found
    assert (await described("")).error_code is ErrorCode.invalid_request
    assert await listed() == (["a", "b"], ())
    assert await listed(state_filters=("Ongoing", "Odd")) == (["a"], ("Odd",))
    assert await listed(producer_id_filters=(producer.producer_id,)) == (["a"], ())
    assert await listed(duration_filter=60_000, state_filters=("Ongoing",)) == ([], ())
    assert await listed(transactional_id_pattern="[b-z]+") == (["b"], ())
    refused = await channel.request(ListTransactionsRequest(transactional_id_pattern="["))
    assert refused.error_code is ErrorCode.invalid_regular_expression
    assert (await described("b")).transaction_start_time is None, "as Kafka's clients take -1"


@with_brokers(config=CONFIG)
async def test_listing_by_pattern_goes_to_a_thread_once_for_all_coordinators(brokers: Brokers) -> None:
    """Each batch of a query waits for a listing, and would for a thread for each of 50 coordinators."""

    class CountingThreads(ThreadPoolExecutor):
        count = 0

        def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
            self.count += 1
            return super().submit(function, *arguments, **named)

    ids = [f"writer-{number}" for number in range(16)]
    await brokers.commit(FeatureLevelRecord(name="transaction.version", feature_level=2))
    await brokers.create_topic(TRANSACTION_STATE_TOPIC, [(0,)] * 16)
    runtime = brokers.brokers[0].replicas.coordinators.transactions.runtime
    await until(
        lambda: [state.name for state in runtime.partitions.values()] == ["ACTIVE"] * 16, "all are loaded"
    )
    channel = await brokers.connect(0)
    for each in (*ids, "another"):
        assert (await init(channel, each))[0] is NONE
    with CountingThreads() as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        response = await channel.request(
            ListTransactionsRequest(state_filters=("Empty",), transactional_id_pattern="writer-.*")
        )
        assert sorted(each.transactional_id for each in response.transaction_states) == sorted(ids)
        assert threads.count == 1


@with_brokers(config=CONFIG)
async def test_open_transaction_ends_by_its_time_out(brokers: Brokers) -> None:
    """Readers of its partitions wait for it: it must not hang for ever."""
    _, topic_id = await begin(brokers)
    channel = await loaded(brokers)
    _, producer = await init(channel, timeout_ms=1_000)
    assert await write(channel, topic_id, producer) is NONE
    await until(lambda: state_of(brokers, 0, topic_id) == (2, 2), "the transaction aborted")
    assert await write(channel, topic_id, producer, 1) is not NONE
    response = await channel.request(ListTransactionsRequest(state_filters=("CompleteAbort",)))
    assert response.transaction_states == (
        Listed(transactional_id="a", producer_id=producer.producer_id, transaction_state="CompleteAbort"),
    )


@with_brokers(count=2)
async def test_listing_whose_coordinator_is_given_away_meanwhile_is_to_be_asked_for_again(
    brokers: Brokers,
) -> None:
    """Who looks for what a dead writer left would take what is missing for ended."""
    state_id, _ = await begin(brokers)
    channel = await loaded(brokers)
    await init(channel, "a")
    await brokers.stop(1)
    initializing = asyncio.ensure_future(init(channel, "b"))  # which nobody replicates
    runtime = brokers.brokers[0].replicas.coordinators.transactions.runtime
    await until(lambda: runtime.open_count == 1, "it waits")
    listing = asyncio.ensure_future(channel.request(ListTransactionsRequest()))
    await until(lambda: runtime.open_count == 2, "the listing waits for it")
    await brokers.elect(state_id, 0, 1, [0, 1])
    response = await listing
    assert response.error_code is ErrorCode.coordinator_load_in_progress
    assert response.transaction_states == ()
    assert (await initializing)[0] is ErrorCode.not_coordinator


@with_brokers(count=3, config=CONFIG)
async def test_next_coordinator_sends_the_markers_of_what_was_decided(brokers: Brokers) -> None:
    """It was decided while the partition's leader was down, and then the coordinator fell too."""
    state_id, topic_id = await begin(brokers, [(2, 1)])
    coordinator = await loaded(brokers)
    leader = await brokers.connect(2)
    _, producer = await init(coordinator)
    assert await write(leader, topic_id, producer) is NONE
    await until(lambda: brokers.replica(1, topic_id).log.log_end_offset == 1, "the batch replicated")
    await brokers.stop(2)
    await brokers.elect(state_id, 0, 0, [0, 1])
    coordinator = await loaded(brokers)
    error_code, bumped = await end(coordinator, producer)
    assert error_code is NONE and bumped is not None
    assert (await end(coordinator, producer))[0] is ErrorCode.concurrent_transactions
    await brokers.stop(0)
    await brokers.elect(state_id, 0, 1, [1])
    await brokers.elect(topic_id, 0, 1, [1])
    await until(lambda: state_of(brokers, 1, topic_id) == (2, 2), "the marker written")
    successor = await loaded(brokers, 1)
    assert await end(successor, producer) == (NONE, bumped)


@with_brokers(count=3, config=CONFIG)
async def test_decided_transaction_is_described_with_the_partitions_that_lack_its_marker(
    brokers: Brokers,
) -> None:
    """Of a hundred partitions one holds it up, and an operator has to know which."""
    state_id, topic_id = await begin(brokers, [(0,), (2,)])
    coordinator = await loaded(brokers)
    _, producer = await init(coordinator)
    assert await add3(coordinator, producer, "t", 0, 1) == [NONE, NONE]
    await brokers.stop(2)
    await brokers.elect(state_id, 0, 0, [0, 1])
    coordinator = await loaded(brokers)
    assert await end(coordinator, producer, request_type=EndTxn4) == (NONE, None)
    await until(lambda: state_of(brokers, 0, topic_id) == (1, 1), "the marker written where it can be")
    request = DescribeTransactionsRequest(transactional_ids=("a",))
    topics = None
    while topics != (TopicData(topic="t", partitions=(1,)),):  # it hears of the first marker in a moment
        (state,) = (await coordinator.request(request)).transaction_states
        topics = state.topics
    assert state.transaction_state == "PrepareCommit"


@with_brokers()
async def test_offsets_partition_is_added_and_a_broker_that_does_not_coordinate_says_so(
    brokers: Brokers,
) -> None:
    """The client looks for the coordinator again, instead of failing."""
    await brokers.create_topic(CONSUMER_OFFSETS_TOPIC, [(0,)])
    channel = await brokers.connect(0)

    async def add_offsets(transactional_id: str, producer: ProducerStamp) -> ErrorCode:
        response = await channel.request(
            AddOffsetsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                group_id="g",
            )
        )
        error_code: ErrorCode = response.error_code
        return error_code

    stranger = ProducerStamp(7, 0)
    assert (await init(channel))[0] is ErrorCode.not_coordinator
    assert (await end(channel, stranger))[0] is ErrorCode.not_coordinator
    assert await add_offsets("a", stranger) is ErrorCode.not_coordinator
    await begin(brokers)
    await loaded(brokers)
    assert (await init(channel, ""))[0] is ErrorCode.invalid_request
    assert (await init(channel, "a", timeout_ms=2**31 - 1))[0] is ErrorCode.invalid_transaction_timeout
    assert (await init(channel, "a", producer=ProducerStamp(5, -1)))[0] is ErrorCode.invalid_request
    assert await init(channel, None) == (NONE, ProducerStamp(1, 0))
    _, producer = await init(channel)
    assert await add_offsets("", producer) is ErrorCode.invalid_request
    assert await add_offsets("a", stranger) is ErrorCode.invalid_producer_id_mapping
    assert await add_offsets("a", producer) is NONE
    response = await channel.request(DescribeTransactionsRequest(transactional_ids=("a",)))
    assert response.transaction_states[0].topics == (
        TopicData(topic=CONSUMER_OFFSETS_TOPIC, partitions=(0,)),
    )


@with_brokers(config={"transaction.two.phase.commit.enable": "true", **CONFIG})
async def test_transaction_of_two_phases_waits_for_its_decision(brokers: Brokers) -> None:
    """Its producer is gone; whoever knows it decides, when it suits."""
    _, topic_id = await begin(brokers)
    channel = await loaded(brokers)
    _, producer = await init(channel, timeout_ms=2**31 - 1)
    assert await write(channel, topic_id, producer) is NONE
    assert state_of(brokers, 0, topic_id) == (0, 1)
    decides = await brokers.connect(0)
    assert (await end(decides, producer))[0] is NONE
    await until(lambda: state_of(brokers, 0, topic_id) == (2, 2), "the marker written")
