"""Produce of transactions: the first batch waits for what the coordinator says of it (KIP-890)."""

import asyncio
import datetime
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

from sparklog.node.calling.channel import Channel
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.schemas import BrokerEndpoint, RegisterBrokerRecord
from sparklog.node.serving.listener import Listener, Service
from sparklog.node.serving.requests import Api, Deferred, Request
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.codecs import Codec
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import MILLISECOND, batch, rows

COORDINATOR_ID = 9
NONE = ErrorCode.none


class Coordinator:
    """A broker that coordinates all transactions, and says what the test has it say."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: list[ErrorCode] = []
        """What is said of all partitions of one request after the other; then that they are good."""
        self.is_silent = False
        self.is_silent_about: str | None = None
        self.silenced: list[tuple[Deferred, Any]] = []

    def handle(self, request: Request) -> Any:
        self.requests.append(request.body)
        if self.is_silent or self.is_silent_about in {
            each.transactional_id for each in request.body.transactions
        }:
            self.silenced.append((Deferred(), request.body))
            return self.silenced[-1][0]
        return self._response(request.body)

    def speak(self) -> None:
        """Answer what was asked meanwhile."""
        silenced, self.silenced = self.silenced, []
        self.is_silent, self.is_silent_about = False, None
        for deferred, body in silenced:
            deferred.complete(self._response(body))

    def _response(self, body: Any) -> Any:
        code = self.answers.pop(0) if self.answers else NONE
        return AddPartitionsToTxnResponse(
            throttle_time=datetime.timedelta(),
            error_code=NONE,
            results_by_transaction=tuple(
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=tuple(
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=tuple(
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=number, partition_error_code=code
                                )
                                for number in topic.partitions
                            ),
                        )
                        for topic in each.topics
                    ),
                )
                for each in body.transactions
            ),
        )

    @property
    def asked(self) -> list[Any]:
        """Ids, epochs, partitions of topic t, and whether it was only asked, of each request."""
        return [
            [
                (each.transactional_id, each.producer_epoch, each.topics[0].partitions, each.verify_only)
                for each in body.transactions
            ]
            for body in self.requests
        ]


@asynccontextmanager
async def coordinated(brokers: Brokers) -> AsyncIterator[Coordinator]:
    """Have a coordinator for all transactions."""
    coordinator = Coordinator()
    table = {ApiKey.ADD_PARTITIONS_TO_TXN: Api(4, 5, coordinator.handle)}
    listener = await Listener.start("127.0.0.1", 0, Service(apis=table))
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=listener.port, security_protocol=0)
    await brokers.commit(
        RegisterBrokerRecord(
            broker_id=COORDINATOR_ID,
            incarnation_id=uuid4(),
            broker_epoch=1,
            end_points=(endpoint,),
            rack=None,
            fenced=False,
        )
    )
    await brokers.create_topic("__transaction_state", [(COORDINATOR_ID,)] * 3)
    try:
        yield coordinator
    finally:
        await listener.close()


def records(
    sequence: int = 0, *, producer_id: int = 1, epoch: int = 0, codec: Codec = Codec.NONE, count: int = 1
) -> bytes:
    """A batch of a transaction."""
    return batch(
        count,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def produce(*batches: bytes, version: int = 12, name: str | None = "mine", acks: int = -1) -> Any:
    """Produce the n-th batch to partition n of topic t."""
    module = importlib.import_module(f"kio.schema.produce.v{version}.request")
    return module.ProduceRequest(
        transactional_id=name,
        acks=acks,
        timeout=10_000 * MILLISECOND,
        topic_data=(
            module.TopicProduceData(
                name="t",
                partition_data=tuple(
                    module.PartitionProduceData(index=index, records=data)
                    for index, data in enumerate(batches)
                ),
            ),
        ),
    )


async def codes(channel: Channel, request: Any) -> list[ErrorCode]:
    """Return what became of each partition."""
    return [row.error_code for row in rows(await channel.request(request))]


@pytest.mark.parametrize(("version", "verify_only"), [(9, True), (11, True), (12, False)])
def test_first_batch_of_a_transaction_is_verified_and_no_other(
    version: int, verify_only: bool, tmp_path: Any
) -> None:
    """Clients that add partitions themselves are checked; since Produce 12 the broker adds them."""

    @with_brokers()
    async def scenario(brokers: Brokers) -> None:
        await brokers.create_topic("t", [(0,), (0,)])
        channel = await brokers.connect(0)
        async with coordinated(brokers) as coordinator:
            sent = produce(records(count=3), records(), version=version)
            assert await codes(channel, sent) == [NONE, NONE]
            assert coordinator.asked == [[("mine", 0, (0, 1), verify_only)]]
            sent = produce(records(3), records(1), version=version)
            assert await codes(channel, sent) == [NONE, NONE]
            assert len(coordinator.requests) == 1

    scenario(tmp_path)


@with_brokers()
async def test_first_batch_is_not_overtaken_while_it_is_verified(brokers: Brokers) -> None:
    """A producer sends the next batches without waiting: they come in order or not at all."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    async with coordinated(brokers) as coordinator:
        coordinator.is_silent = True
        answers = [channel.request(produce(records(number))) for number in range(5)]
        await until(lambda: len(coordinator.requests) == 1, "the coordinator is asked")
        other = await brokers.connect(0)
        assert await codes(other, produce(batch(), name=None)) == [NONE], "others are served meanwhile"
        coordinator.speak()
        offsets = [rows(await answer)[0].base_offset for answer in answers]
        assert offsets == [1, 2, 3, 4, 5]
        assert len(coordinator.requests) == 1
    assert brokers.replica(0, topic_id).last_stable_offset == 1


@with_brokers()
async def test_marker_between_verification_and_append_has_the_batch_refused(brokers: Brokers) -> None:
    """The transaction timed out meanwhile: what is appended now would hang for ever."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    replica = brokers.replica(0, topic_id)
    async with coordinated(brokers) as coordinator:
        coordinator.is_silent = True
        answer = channel.request(produce(records(), version=11))
        await until(lambda: len(coordinator.requests) == 1, "the coordinator is asked")
        replica.require_leader()
        replica.append_marker(EndTransactionMarker(1, 0, False, 0, 1), 0, 0, None)
        coordinator.speak()
        assert rows(await answer)[0].error_code is ErrorCode.invalid_txn_state
    assert (replica.log.log_end_offset, replica.last_stable_offset) == (1, 1)


@with_brokers()
async def test_leader_epoch_that_ends_during_the_verification_has_the_batch_refused(
    brokers: Brokers,
) -> None:
    """Another leader may have written in between; the producer asks for the leader and comes again."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    async with coordinated(brokers) as coordinator:
        coordinator.is_silent = True
        answer = channel.request(produce(records()))
        await until(lambda: len(coordinator.requests) == 1, "the coordinator is asked")
        await brokers.elect(topic_id, 0, leader=0, isr=[0])
        coordinator.speak()
        assert rows(await answer)[0].error_code is ErrorCode.not_leader_or_follower
        assert await codes(channel, produce(records())) == [NONE]


@with_brokers()
async def test_batch_that_comes_again_while_it_is_verified_is_appended_once(brokers: Brokers) -> None:
    """Its client has lost the connection and not waited for the coordinator."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel, other = await brokers.connect(0), await brokers.connect(0)
    async with coordinated(brokers) as coordinator:
        coordinator.is_silent = True
        channel.request(produce(records())).cancel()
        await until(lambda: len(coordinator.requests) == 1, "the coordinator is asked")
        channel.close()
        again = other.request(produce(records()))
        coordinator.speak()
        (row,) = rows(await again)
        assert (row.error_code, row.base_offset) == (NONE, 0)
    log = brokers.replica(0, topic_id).log
    assert (log.log_end_offset, len(log.producers.verifications)) == (1, 0)


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (10, "transaction_abortable", "invalid_txn_state"),
        (11, "transaction_abortable", "transaction_abortable"),
        (12, "transaction_abortable", "transaction_abortable"),
        (11, "invalid_txn_state", "invalid_txn_state"),
        (11, "producer_fenced", "invalid_producer_epoch"),
        (12, "invalid_producer_id_mapping", "invalid_producer_id_mapping"),
        (12, "not_coordinator", "not_enough_replicas"),
        (12, "coordinator_load_in_progress", "not_enough_replicas"),
        (11, "coordinator_not_available", "not_enough_replicas"),
        (11, "concurrent_transactions", "not_enough_replicas"),
    ],
)
def test_refusal_is_told_as_the_clients_version_knows_it(
    version: int, said: str, told: str, tmp_path: Any
) -> None:
    """A client retries, aborts or gives up by this code."""

    @with_brokers()
    async def scenario(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0,)])
        channel = await brokers.connect(0)
        async with coordinated(brokers) as coordinator:
            coordinator.answers = [ErrorCode[said]]
            assert await codes(channel, produce(records(), version=version)) == [ErrorCode[told]]
            log = brokers.replica(0, topic_id).log
            assert log.log_end_offset == 0
            assert len(log.producers.verifications) == (1 if told == "not_enough_replicas" else 0)

    scenario(tmp_path)


@with_brokers(config={"add.partitions.to.txn.retry.backoff.ms": "1"})
async def test_transaction_that_follows_at_once_waits_for_the_one_before_to_end(brokers: Brokers) -> None:
    """Its markers are on their way: a few milliseconds here spare the client its back-off."""
    await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    async with coordinated(brokers) as coordinator:
        coordinator.answers = [ErrorCode.concurrent_transactions] * 3
        assert await codes(channel, produce(records())) == [NONE]
        assert len(coordinator.requests) == 4


@with_brokers(config={"add.partitions.to.txn.retry.backoff.max.ms": "0"})
async def test_transaction_before_that_does_not_end_is_told_to_the_producer(brokers: Brokers) -> None:
    """Only so long is a connection held; since version 2 producers know what to do."""
    await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    async with coordinated(brokers) as coordinator:
        coordinator.answers = [ErrorCode.concurrent_transactions]
        assert await codes(channel, produce(records())) == [ErrorCode.concurrent_transactions]


@with_brokers()
async def test_transactional_records_of_two_producers_have_the_whole_request_refused(
    brokers: Brokers,
) -> None:
    """One transactional id has one producer, and what a client sends as a whole is refused as a whole."""
    topic_id = await brokers.create_topic("t", [(0,), (0,), (0,)])
    channel = await brokers.connect(0)
    async with coordinated(brokers) as coordinator:
        sent = produce(batch(), records(producer_id=1), records(producer_id=2))
        assert await codes(channel, sent) == [ErrorCode.invalid_producer_id_mapping] * 3
        assert coordinator.requests == []
    assert brokers.replica(0, topic_id).log.log_end_offset == 0


@with_brokers()
async def test_coordinator_that_is_not_there_has_the_batch_come_again(brokers: Brokers) -> None:
    """Its broker died, or nobody leads its partition yet."""
    await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    assert await codes(channel, produce(records())) == [ErrorCode.not_enough_replicas]
    async with coordinated(brokers):
        pass
    assert await codes(channel, produce(records())) == [ErrorCode.not_enough_replicas]


@with_brokers(config={"transaction.partition.verification.enable": "false"})
async def test_older_clients_are_not_verified_where_that_is_off(brokers: Brokers) -> None:
    """As in Kafka, partitions are still added for those that leave it to the broker."""
    await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    async with coordinated(brokers) as coordinator:
        assert await codes(channel, produce(records(), version=11)) == [NONE]
        assert coordinator.asked == []
        assert await codes(channel, produce(records(producer_id=2), name="other")) == [NONE]
        assert coordinator.asked == [[("other", 0, (0,), False)]]


@with_brokers()
async def test_partition_named_twice_is_verified_and_answered_once(brokers: Brokers) -> None:
    """A batch that is let in though its coordinator refused the partition would hang for ever."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    async with coordinated(brokers) as coordinator:
        coordinator.answers = [ErrorCode.not_coordinator]
        once = produce(records())
        (topic,) = once.topic_data
        twice = replace(
            once,
            topic_data=(replace(topic, partition_data=topic.partition_data * 2), topic),
        )
        assert await codes(channel, twice) == [ErrorCode.not_enough_replicas]
        assert brokers.replica(0, topic_id).log.log_end_offset == 0
        assert await codes(channel, once) == [NONE]


@with_brokers()
async def test_partition_that_is_refused_is_nothing_to_the_others_of_its_request(brokers: Brokers) -> None:
    """Each is verified on its own, and a batch outside of a transaction not at all."""
    await brokers.create_topic("t", [(0,), (0,), (0,), (0,)])
    channel = await brokers.connect(0)
    async with coordinated(brokers) as coordinator:
        assert await codes(channel, produce(records(epoch=1))) == [NONE]
        sent = produce(records(), records(epoch=0), records(5, epoch=0), batch())
        assert await codes(channel, sent) == [
            ErrorCode.invalid_producer_epoch,
            NONE,
            ErrorCode.out_of_order_sequence_number,
            NONE,
        ]
        assert coordinator.asked[1:] == [[("mine", 0, (1, 2), False)]]


@with_brokers(count=3)
async def test_compressed_batches_of_a_transaction_are_looked_into_and_replicated(brokers: Brokers) -> None:
    """Verification is one reason to wait, examination another."""
    config = {"compression.type": "gzip"}
    topic_id = await brokers.create_topic("t", [(0, 1, 2)], config)
    channel = await brokers.connect(0)
    async with coordinated(brokers):
        for sequence in (0, 100):
            data = records(sequence, codec=Codec.ZSTD, count=100)
            assert await codes(channel, produce(data)) == [NONE]
    ends = [brokers.replica(number, topic_id).log.log_end_offset for number in range(3)]
    assert ends == [200, 200, 200]


@with_brokers()
async def test_producers_that_begin_at_once_are_asked_about_in_one_request(brokers: Brokers) -> None:
    """While a request is under way the next is filled."""
    await brokers.create_topic("t", [(0,)])
    channels = [await brokers.connect(0) for _ in range(5)]
    async with coordinated(brokers) as coordinator:
        coordinator.is_silent = True
        first = channels[0].request(produce(records(producer_id=0), name="0"))
        await until(lambda: len(coordinator.requests) == 1, "the coordinator is asked")
        log = brokers.brokers[0].replicas.table.find("t", 0).log
        others = [
            channels[number].request(produce(records(producer_id=number), name=str(number)))
            for number in range(1, 5)
        ]
        await until(lambda: len(log.producers.verifications) == 5, "all are to be verified")
        coordinator.speak()
        for answer in (first, *others):
            assert rows(await answer)[0].error_code is NONE
        assert [len(asked) for asked in coordinator.asked] == [1, 4]


@with_brokers()
async def test_transaction_whose_coordinator_is_slow_holds_up_its_own_kind_alone(brokers: Brokers) -> None:
    """One partition of the coordinators' that could commit nothing held up all transactions of a broker."""
    await brokers.create_topic("t", [(0,)])
    slow, other = "mine", "theirs"
    async with coordinated(brokers) as coordinator:
        assert partition_for(slow, 3) != partition_for(other, 3)
        first, second = await brokers.connect(0), await brokers.connect(0)
        coordinator.answers = [ErrorCode.coordinator_not_available]
        assert await codes(first, produce(records(), name=slow)) == [ErrorCode.not_enough_replicas]
        coordinator.is_silent_about = slow
        again = first.request(produce(records(), name=slow))
        await until(lambda: len(coordinator.silenced) == 1, "the slow one is asked again")
        async with asyncio.timeout(10):
            assert await codes(second, produce(records(producer_id=2), name=other)) == [NONE]
        assert not again.done()
        coordinator.speak()
        assert rows(await again)[0].error_code is NONE
