"""Questions of a follower to leaders: where their local logs start, and where their tiers end.

ListOffsets with Kafka's special times (KIP-405, KIP-1005), as a replica. Such questions are rare, at the
beginning of a follower and at its checks of local retention: each has a connection of its own, and none waits
behind a fetch that the leader holds.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

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

    async def local_start_and_tiered_end(
        self, leader_id: BrokerId, led: LedPartition
    ) -> tuple[Offset, Offset | None]:
        """Return the leader's local log start offset, and the end of its tier's part (None: it has none).

        Raises:
            KafkaError: the leader cannot be reached, or refuses.
        """
        starts, ends = await self._ask(leader_id, [led], EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP)
        start = starts[led.partition]
        if start is None:
            raise KafkaError(
                ErrorCode.unknown_server_error, f"{led.partition}: the leader knows no local start"
            )
        return start, _end_after(ends[led.partition])

    async def tiered_ends(
        self, leader_id: BrokerId, led: Sequence[LedPartition]
    ) -> dict[TopicPartition, Offset]:
        """Return the ends of the tiers' parts of those partitions for which the leader knows one.

        Raises:
            KafkaError: the leader cannot be reached.
        """
        (found,) = await self._ask(leader_id, led, LATEST_TIERED_TIMESTAMP, refuses=False)
        ends = {partition: _end_after(last) for partition, last in found.items()}
        return {partition: end for partition, end in ends.items() if end is not None}

    async def _ask(
        self, leader_id: BrokerId, led: Sequence[LedPartition], *timestamps: int, refuses: bool = True
    ) -> list[dict[TopicPartition, Offset | None]]:
        """Ask each time in a request of its own: one must not name a partition twice."""
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
        return [_offsets(answer, refuses=refuses) for answer in answers]


def _offsets(response: object, *, refuses: bool) -> dict[TopicPartition, Offset | None]:
    found: dict[TopicPartition, Offset | None] = {}
    for topic in response.topics:  # type: ignore[attr-defined]
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code is not ErrorCode.none and refuses:
                raise KafkaError(row.error_code, f"{partition}: the leader does not say its offsets")
            is_known = row.error_code is ErrorCode.none and row.offset >= 0
            found[partition] = row.offset if is_known else None
    return found


def _end_after(last_offset: Offset | None) -> Offset | None:
    return None if last_offset is None else last_offset + 1
