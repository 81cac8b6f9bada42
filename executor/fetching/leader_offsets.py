"""Questions of a follower to leaders: where their local logs start, and where their tiers end.

ListOffsets with Kafka's special times (KIP-405, KIP-1005), as a replica. Such questions are rare, at the
beginning of a follower and at its checks of local retention: they have connections of their own, and none
waits behind a fetch that the leader holds. A broker with empty disks begins hundreds of followers at once:
the partitions of one leader that wait at the same time are asked for together.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.calling.channel import Channel
from sparklog.node.calling.cluster_credentials import ClusterCredentials
from sparklog.node.calling.list_offsets_request import AskedOffset, list_offsets_request
from sparklog.node.storage.results import EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, TopicPartition


class LedPartition(NamedTuple):
    """A partition and the epoch in which its leader is asked; in another one it refuses."""

    partition: TopicPartition
    leader_epoch: LeaderEpoch


_Answer: TypeAlias = Offset | KafkaError | None
"""None: the leader knows no such offset."""


class _Question(NamedTuple):
    """The wait of one follower for the offsets of its leader."""

    led: LedPartition
    answer: asyncio.Future[tuple[Offset, Offset | None]]


class LeaderOffsets:
    def __init__(
        self,
        broker_id: BrokerId,
        table: PartitionTable,
        timeout_ms: int,
        cluster_credentials: ClusterCredentials,
    ) -> None:
        self._broker_id = broker_id
        self._table = table
        self._timeout_ms: Final = timeout_ms
        self._cluster_credentials = cluster_credentials
        self._waiting: dict[BrokerId, list[_Question]] = {}
        """The questions to each leader that are in no request yet."""
        self._asking: dict[BrokerId, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """End what is under way; its followers are stopped."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def local_start_and_tiered_end(
        self, leader_id: BrokerId, led: LedPartition
    ) -> tuple[Offset, Offset | None]:
        """Return the leader's local log start offset, and the end of its tier's part (None: it has none).

        Raises:
            KafkaError: the leader cannot be reached, or refuses.
        """
        loop = asyncio.get_running_loop()
        question = _Question(led, loop.create_future())
        self._waiting.setdefault(leader_id, []).append(question)
        if leader_id not in self._asking:
            self._asking[leader_id] = loop.create_task(self._ask_waiting(leader_id))
        return await question.answer

    async def _ask_waiting(self, leader_id: BrokerId) -> None:
        """Ask a leader until no question waits."""
        try:
            while waiting := self._waiting.pop(leader_id, None):
                # A request must not name a partition twice, in whichever epochs.
                together = {question.led.partition: question for question in waiting}
                later = [each for each in waiting if together[each.led.partition] is not each]
                if later:
                    self._waiting[leader_id] = later
                await self._answer(leader_id, list(together.values()))
        finally:
            del self._asking[leader_id]

    async def _answer(self, leader_id: BrokerId, questions: Sequence[_Question]) -> None:
        answers: list[tuple[Offset, Offset | None] | Exception]
        try:
            starts, ends = await self._ask(
                leader_id,
                [question.led for question in questions],
                EARLIEST_LOCAL_TIMESTAMP,
                LATEST_TIERED_TIMESTAMP,
            )
            partitions = [question.led.partition for question in questions]
            answers = [_start_and_end(each, starts[each], ends[each]) for each in partitions]
        except Exception as error:  # each follower reports it
            answers = [error] * len(questions)
        for question, answer in zip(questions, answers, strict=True):
            if question.answer.done():
                continue  # its follower has ended
            if isinstance(answer, Exception):
                question.answer.set_exception(answer)
            else:
                question.answer.set_result(answer)

    async def tiered_ends(
        self, leader_id: BrokerId, led: Sequence[LedPartition]
    ) -> dict[TopicPartition, Offset]:
        """Return the ends of the tiers' parts of those partitions for which the leader knows one.

        Raises:
            KafkaError: the leader cannot be reached.
        """
        (found,) = await self._ask(leader_id, led, LATEST_TIERED_TIMESTAMP)
        return {partition: last + 1 for partition, last in found.items() if isinstance(last, int)}

    async def _ask(
        self, leader_id: BrokerId, led: Sequence[LedPartition], *timestamps: int
    ) -> list[dict[TopicPartition, _Answer]]:
        """Ask each time in a request of its own: one must not name a partition twice.

        Raises:
            KafkaError: the leader cannot be reached.
        """
        found = self._table.endpoint(leader_id)
        if found is None:
            raise KafkaError(ErrorCode.network_exception, f"the address of broker {leader_id} is not known")
        endpoint, _ = found
        channel = await Channel.connect(
            endpoint.host,
            endpoint.port,
            f"broker-{self._broker_id}-offsets",
            connect_timeout_ms=self._timeout_ms,
            request_timeout_ms=self._timeout_ms,
            login=self._cluster_credentials.login,
            tls=self._cluster_credentials.tls,
        )
        try:
            asked = [
                channel.request(
                    list_offsets_request(
                        (AskedOffset(*partition, timestamp, epoch) for partition, epoch in led),
                        replica_id=self._broker_id,
                        timeout_ms=self._timeout_ms,
                    )
                )
                for timestamp in timestamps
            ]
            answers = [await answer for answer in asked]
        finally:
            channel.close()
        return [_offsets(answer, led) for answer in answers]


def _offsets(response: Any, asked: Sequence[LedPartition]) -> dict[TopicPartition, _Answer]:
    """Return each partition's offset, the leader's refusal, or None where the leader knows none."""
    found: dict[TopicPartition, _Answer] = dict.fromkeys(each.partition for each in asked)
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code is not ErrorCode.none:
                found[partition] = KafkaError(
                    row.error_code, f"{partition}: the leader does not say its offsets"
                )
            elif row.offset >= 0:
                found[partition] = row.offset
    return found


def _start_and_end(
    partition: TopicPartition, start: _Answer, last: _Answer
) -> tuple[Offset, Offset | None] | KafkaError:
    if isinstance(start, KafkaError):
        return start
    if isinstance(last, KafkaError):
        return last
    if start is None:
        return KafkaError(ErrorCode.unknown_server_error, f"{partition}: the leader knows no local start")
    return start, None if last is None else last + 1
