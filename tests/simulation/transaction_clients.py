"""Clients that write in transactions, of both versions, two of each transactional id at a time.

Each fences the other when it begins; some leave a transaction open or pause for longer than it may take, and
go on as if nothing had happened. What is not answered is sent again, and of some requests a copy comes late.

A client of version 1 asks for a new epoch when something of a transaction was sent more than once: all its
transactions share one otherwise, and nothing tells a request that is late from one of the next transaction.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest
from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kio.schema.end_txn import v4 as end_txn_v4
from kio.schema.end_txn import v5 as end_txn_v5
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.produce import v11 as produce_v11
from kio.schema.produce import v12 as produce_v12
from kio.schema.txn_offset_commit import v4 as txn_offset_commit_v4
from kio.schema.txn_offset_commit import v5 as txn_offset_commit_v5

from sparklog.executor.api.produce.delayed_produce import ACKS_ALL
from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import Offset, TopicPartition
from tests.simulation.async_client import Answered, AsyncClient
from tests.simulation.clients import REQUEST_TIMEOUT_MS
from tests.simulation.committed_readers import read_committed
from tests.simulation.leading import START_MS
from tests.simulation.serving import ApiRequest
from tests.simulation.transaction_book import ClientTransaction

if TYPE_CHECKING:
    from tests.simulation.cluster import World

TIMEOUT_MS: Final = 1_000
_LEFT_OPEN: Final = 0.08
_PAUSED: Final = 0.08
_PAUSE_MS: Final = (900, 3_000)
_COMMITTED: Final = 0.7
_COPIES: Final = 0.06
_GIVEN_UP: Final = 0.2
"""How often a producer aborts when a batch was not acknowledged at once."""
_ABANDONED: Final = 0.05
"""How often a producer aborts without waiting for a batch that it has sent;"""
_ABANDONED_WITHIN_MS: Final = 30
"""and how soon, at most."""
_KEYS: Final = 4
_FENCED: Final = frozenset(
    {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping}
)
_TO_ABORT: Final = frozenset(
    {
        ErrorCode.transaction_abortable,
        ErrorCode.invalid_txn_state,
        ErrorCode.out_of_order_sequence_number,
    }
)


class FencedError(Exception):
    """Another producer has the transactional id, or the transaction was ended for this one."""


class MustAbortError(Exception):
    """The transaction can only be aborted."""


class TransactionalClient:
    """One producer after the other, of one transactional id."""

    def __init__(self, world: "World", transactional_id: str, name: str, *, is_first: bool) -> None:
        """Of the clients of an id, one `is_first` to begin."""
        self.transactional_id: Final = transactional_id
        self.has_settled = False
        """Whether it writes no more."""
        self.client: Final = AsyncClient(world)
        self.world: Final = world
        self.random: Final = world.scheduler.random
        self.pause_ms: Final = self.random.choice((10, 30, 100))
        self._rest_ms = self.random.choice((400, 2_000, 5_000))
        """Until it begins anew, and fences who has begun meanwhile."""
        self._name = name
        self._is_first = is_first
        self._instances = 0
        self._transactions = 0
        self._version = 2
        self._producer = ProducerStamp(-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._must_bump = False
        self.client.loop.create_task(self._live())

    @property
    def goes_on(self) -> bool:
        """Whether there is anything left to do."""
        return self.world.accepts_writes

    async def be_producer(self) -> None:
        """Write until there is no more to write, or as this producer no more."""
        raise NotImplementedError

    async def _live(self) -> None:
        await self.client.sleep(400 if self._is_first else self._rest_ms)
        while self.goes_on:
            self._instances += 1
            self._version = self.random.choice((1, 2))
            try:
                await self._initialize(None)
                await self.be_producer()
            except FencedError:
                pass
            await self.client.sleep(self._rest_ms if self.world.accepts_writes else 50)
        self.has_settled = True

    # --- one transaction ------------------------------------------------------------------------

    async def transact(self, write: Callable[[ClientTransaction], Any]) -> ClientTransaction:
        """Have `write` write in a transaction, and end it, unless it is left open."""
        self._transactions += 1
        asker = f"{self._name}-{self._instances}"
        transaction = self.world.transactions.begin(f"{asker}.{self._transactions}", self._producer)
        # In the end it is to come to an end.
        is_last = not self.world.accepts_writes
        commits = is_last or self.random.random() < _COMMITTED
        try:
            await write(transaction)
        except MustAbortError:
            commits = False
            self._must_bump = True
        if self.random.random() < _PAUSED and not is_last:
            self.client.stop()
            self.world.scheduler.after(self.random.randint(*_PAUSE_MS), self.client.go_on)
            await self.client.sleep(1)
        if self.random.random() < _LEFT_OPEN and not is_last:
            raise FencedError
        await self._end(transaction, commits=commits)
        return transaction

    async def produce(self, transaction: ClientTransaction, topic: str, partition: int, value: str) -> None:
        """Write a batch, and have it acknowledged."""
        count = self.random.randint(1, 2)
        where = TopicPartition(topic, partition)
        sequence = self._sequences.get(where, 0)
        record = SimpleRecord(
            b"%d" % self.random.randrange(_KEYS), f"{transaction.name} {value}".encode(), (), START_MS
        )
        batch = build_batch(
            [record] * count,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        schema: Any = (produce_v11 if self._version == 1 else produce_v12).request
        data = schema.PartitionProduceData(index=partition, records=batch)
        request = schema.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ACKS_ALL,
            timeout=timedelta(milliseconds=REQUEST_TIMEOUT_MS // 2),
            topic_data=(schema.TopicProduceData(name=topic, partition_data=(data,)),),
        )
        if self.world.accepts_writes and self.random.random() < _ABANDONED:
            self.client.send(topic, partition, ApiRequest.of(request))
            await self.client.sleep(_ABANDONED_WITHIN_MS)
            raise MustAbortError
        answered = await self._ask(
            topic,
            lambda count: partition,
            request,
            lambda response: response.responses[0].partition_responses[0].error_code,
            gives_up=_GIVEN_UP if self.world.accepts_writes else 0.0,
        )
        self._sequences[where] = sequence + count
        key = self.world.key_of(topic, partition)
        base_offset = answered.response.responses[0].partition_responses[0].base_offset
        transaction.acknowledged.append((key, base_offset))

    async def add(self, partitions: set[TopicPartition]) -> None:
        """Have partitions added, which clients of version 2 leave to the brokers."""
        if self._version != 1:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer.producer_id,
            v3_and_below_producer_epoch=self._producer.producer_epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=topic, partitions=tuple(numbers))
                for topic, numbers in topics.items()
            ),
        )
        await self._ask_coordinator(
            request,
            lambda response: (
                response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )

    async def commit_offset(
        self, transaction: ClientTransaction, group_id: str, of: TopicPartition, offset: Offset
    ) -> None:
        """Commit an offset in the transaction."""
        if self._version == 1:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.producer_epoch,
                group_id=group_id,
            )
            await self._ask_coordinator(request, lambda response: response.error_code)
        schema: Any = (txn_offset_commit_v4 if self._version == 1 else txn_offset_commit_v5).request
        committed = schema.TxnOffsetCommitRequestPartition(
            partition_index=of.partition, committed_offset=offset, committed_metadata=transaction.name
        )
        commit = schema.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            topics=(schema.TxnOffsetCommitRequestTopic(name=of.topic, partitions=(committed,)),),
        )
        await self._ask(
            CONSUMER_OFFSETS_TOPIC,
            lambda count: partition_for(group_id, count),
            commit,
            lambda response: response.topics[0].partitions[0].error_code,
        )

    # --- the coordinator ------------------------------------------------------------------------

    async def _initialize(self, expected: ProducerStamp | None) -> None:
        producer_id, producer_epoch = expected or (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout=timedelta(milliseconds=TIMEOUT_MS),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        answered = await self._ask_coordinator(request, lambda response: response.error_code)
        self._given(answered.response, is_new=True)
        self._must_bump = False

    async def _end(self, transaction: ClientTransaction, *, commits: bool) -> None:
        transaction.commit_asked = commits
        schema: Any = (end_txn_v4 if self._version == 1 else end_txn_v5).request
        request = schema.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            committed=commits,
        )
        try:
            answered = await self._ask_coordinator(request, lambda response: response.error_code)
        except MustAbortError:
            raise FencedError from None
        transaction.told = commits
        self.world.outcome.transactions += 1
        if self._version == 2:
            self._given(answered.response, is_new=False)
        elif self._must_bump:
            await self._initialize(self._producer)
        self._must_bump = False

    def _given(self, response: Any, *, is_new: bool) -> None:
        """Be who the coordinator says."""
        self._producer = ProducerStamp(response.producer_id, response.producer_epoch)
        self._sequences.clear()
        asker = f"{self._name}-{self._instances}"
        self.world.producer_given(self.transactional_id, self._producer, asker, is_new=is_new)

    async def _ask_coordinator(self, request: Any, error_of: Callable[[Any], ErrorCode]) -> Answered:
        return await self._ask(
            TRANSACTION_STATE_TOPIC,
            lambda count: partition_for(self.transactional_id, count),
            request,
            error_of,
        )

    async def _ask(
        self,
        topic: str,
        partition_of: Callable[[int], int],
        request: Any,
        error_of: Callable[[Any], ErrorCode],
        gives_up: float = 0.0,
    ) -> Answered:
        """Return the answer of whoever leads a partition, once it is what was asked for."""
        answered = await self.client.ask_until_answered(
            topic,
            partition_of,
            ApiRequest.of(request),
            error_of,
            copies=_COPIES if self.world.accepts_writes else 0.0,
            gives_up=gives_up,
        )
        self._must_bump = self._must_bump or answered.may_come_again
        if answered.error_code in _FENCED:
            raise FencedError
        if answered.error_code in _TO_ABORT or answered.response is None:
            raise MustAbortError
        assert answered.error_code is ErrorCode.none, f"{request} is answered with {answered.error_code!r}"
        return answered


class Writer(TransactionalClient):
    """Writes to some partitions in each transaction."""

    async def be_producer(self) -> None:
        while self.goes_on:
            await self.transact(self._write)
            await self.client.sleep(2 * self.pause_ms)

    async def _write(self, transaction: ClientTransaction) -> None:
        partitions = self.world.data_partitions
        chosen = self.random.sample(partitions, self.random.randint(1, min(3, len(partitions))))
        if self.random.random() < 0.5:
            await self.add(set(chosen))
        for number, where in enumerate(chosen):
            await self.add({where})
            for _ in range(self.random.randint(1, 2)):
                await self.produce(transaction, *where, str(number))
            await self.client.sleep(self.pause_ms)


class Copier(TransactionalClient):
    """Copies what is committed of one partition to another, and commits in the same transaction how far.

    The first one goes on until everything is copied.
    """

    def __init__(self, world: "World", transactional_id: str, name: str, *, is_first: bool) -> None:
        self._has_all = False
        self._group_id = f"group of {transactional_id}"
        super().__init__(world, transactional_id, name, is_first=is_first)

    @property
    def goes_on(self) -> bool:
        return self.world.accepts_writes or (self._is_first and not self._has_all)

    async def be_producer(self) -> None:
        source, target = self.world.copied
        offset = await self._committed_offset(source)
        while self.goes_on:
            read = await read_committed(self.client, source, offset)
            taken = read.shown[: self.random.randint(1, 3) if self.world.accepts_writes else None]
            if not taken:
                offset = read.next_offset
                if read.is_at_end and self.world.writers_have_settled:
                    self._has_all = True
                await self.client.sleep(4 * self.pause_ms)
                continue
            next_offset = taken[-1].next_offset
            value = ",".join(str(header.base_offset) for header in taken)

            async def copy(
                transaction: ClientTransaction, value: str = value, next_offset: Offset = next_offset
            ) -> None:
                transaction.is_of_copier = True
                await self.add({target})
                steps = [
                    lambda: self.produce(transaction, *target, value),
                    lambda: self.commit_offset(transaction, self._group_id, source, next_offset),
                ]
                self.random.shuffle(steps)
                for step in steps:
                    await step()

            transaction = await self.transact(copy)
            offset = next_offset if transaction.told else await self._committed_offset(source)
            await self.client.sleep(self.pause_ms)

    async def _committed_offset(self, of: TopicPartition) -> Offset:
        topics = OffsetFetchRequestTopics(name=of.topic, partition_indexes=(of.partition,))
        group = OffsetFetchRequestGroup(group_id=self._group_id, topics=(topics,))
        request = ApiRequest.of(OffsetFetchRequest(groups=(group,), require_stable=True))

        def error_of(response: Any) -> ErrorCode:
            (group,) = response.groups
            if group.error_code is not ErrorCode.none:
                return ErrorCode(group.error_code)
            return ErrorCode(group.topics[0].partitions[0].error_code)

        answered = await self.client.ask_until_answered(
            CONSUMER_OFFSETS_TOPIC, lambda count: partition_for(self._group_id, count), request, error_of
        )
        assert answered.error_code is ErrorCode.none, answered.error_code
        offset: Offset = answered.response.groups[0].topics[0].partitions[0].committed_offset
        return max(offset, 0)
