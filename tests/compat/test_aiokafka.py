"""aiokafka against a live cluster: assigned partitions, groups and transactions."""

import asyncio
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition

from tests.cluster import LocalCluster
from tests.compat.librdkafka import create_topic, produce

NewName = Callable[[str], str]

TIMEOUT_S = 20


def test_aiokafka_idempotent_reads_what_it_wrote(cluster: LocalCluster, new_topic_name: NewName) -> None:
    """A third client, with a protocol implementation of its own."""
    topic = new_topic_name("aio")
    create_topic(cluster.bootstrap_servers, topic)

    async def round_trip() -> list[bytes | None]:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, compression_type="gzip"
        ) as producer:
            futures = [await producer.send(topic, b"%d" % number) for number in range(500)]
            await asyncio.gather(*futures)
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, 0)])
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(500)]

    assert asyncio.run(round_trip()) == [b"%d" % number for number in range(500)]


def test_aiokafka_members_share_a_topic_and_who_stays_goes_on_from_what_was_committed(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Two rebalances: a second member takes half of the partitions, and leaves them with its offsets."""
    topic = new_topic_name("aio")
    create_topic(cluster.bootstrap_servers, topic, partitions=2)
    produce(
        cluster.bootstrap_servers,
        topic,
        [{"partition": number % 2, "value": b"%d" % number} for number in range(20)],
    )

    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )

    async def assigned(consumer: AIOKafkaConsumer, count: int) -> None:
        while len(consumer.assignment()) != count:  # noqa: ASYNC110 - nothing to wait for
            await asyncio.sleep(0.05)

    async def share() -> None:
        async with asyncio.timeout(3 * TIMEOUT_S), member() as stays:
            read = [int((await stays.getone()).value) for _ in range(20)]
            assert sorted(read) == list(range(20))
            # As if only the first half had been worked on.
            await stays.commit({TopicPartition(topic, partition): 5 for partition in range(2)})
            async with member() as leaves:
                await assigned(stays, 1)
                await assigned(leaves, 1)
                assert stays.assignment() | leaves.assignment() == {
                    TopicPartition(topic, partition) for partition in range(2)
                }
                (left,) = leaves.assignment()
                offsets = [(await leaves.getone()).offset for _ in range(3)]
                assert offsets == [5, 6, 7]
                await leaves.commit()
            await assigned(stays, 2)
            assert await stays.committed(left) == 8
            while (message := await stays.getone()).partition != left.partition:
                pass
            assert message.offset == 8

    asyncio.run(share())


def test_aiokafka_static_member_that_restarts_is_noticed_by_nobody(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """What it has is kept for it, and the other member's is not touched (KIP-345)."""
    topic = new_topic_name("aio")
    create_topic(cluster.bootstrap_servers, topic, partitions=2)
    rebalances: list[set[TopicPartition]] = []

    class Rebalances(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            rebalances.append(revoked)

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            rebalances.append(assigned)

    def member(instance_id: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=topic,
            group_instance_id=instance_id,
            heartbeat_interval_ms=200,
        )

    async def assigned(consumer: AIOKafkaConsumer, count: int) -> frozenset[TopicPartition]:
        while len(consumer.assignment()) != count:  # noqa: ASYNC110 - nothing to wait for
            await asyncio.sleep(0.05)
        return frozenset(consumer.assignment())

    async def restart() -> None:
        async with asyncio.timeout(3 * TIMEOUT_S), member("stays") as stays:
            stays.subscribe([topic], listener=Rebalances())
            await assigned(stays, 2)
            async with member("restarts") as restarts:
                restarts.subscribe([topic])
                had = await assigned(restarts, 1)
                await assigned(stays, 1)
            noticed = len(rebalances)
            async with member("restarts") as restarts:
                restarts.subscribe([topic])
                assert await assigned(restarts, 1) == had
                await restarts.commit(dict.fromkeys(had, 0))
                await stays.commit(dict.fromkeys(stays.assignment(), 0))
            assert rebalances[noticed:] == []

    asyncio.run(restart())


def test_aiokafka_transactions_commit_records_with_offsets_or_neither(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Transactions of before KIP-890, by a client that shares no code with the two others."""
    topic, group = new_topic_name("aio"), new_topic_name("aio-group")
    create_topic(cluster.bootstrap_servers, topic)
    partition = TopicPartition(topic, 0)

    async def transact() -> tuple[list[bytes | None], int | None]:
        async with asyncio.timeout(3 * TIMEOUT_S):
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic
            ) as producer:
                for number in range(4):
                    await producer.begin_transaction()
                    await producer.send_and_wait(topic, b"%d" % number)
                    await producer.send_offsets_to_transaction({partition: number + 1}, group)
                    if number % 2:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            )
            consumer.assign([partition])
            async with consumer:
                committed = await consumer.committed(partition)
                await consumer.seek_to_beginning(partition)
                return [(await consumer.getone()).value for _ in range(2)], committed

    assert asyncio.run(transact()) == ([b"0", b"2"], 3)
