"""Reports the directories of replicas to the controller, many in one AssignReplicasToDirs (KIP-858).

At most one request is in flight; later reports go into the next one, the latest for each replica. Failed
reports are sent again as long as this broker lives: the caller, which sees the result in the metadata,
replaces those that are outdated.

Source: KIP-858.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from kio.schema.assign_replicas_to_dirs.v0.request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

from sparklog.executor.control.broker_requests import BrokerRequests
from sparklog.executor.control.single_flight import SingleFlight
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicIdPartition

RETRY_MS: Final = 100

logger = logging.getLogger(__name__)


class AssignDirectoriesSender:
    """The pending reports of one broker; belongs to its event loop."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests
        self._waiting: dict[TopicIdPartition, UUID] = {}
        self._flight = SingleFlight(self._send_waiting)

    def assign(self, key: TopicIdPartition, directory_id: UUID) -> None:
        self._waiting[key] = directory_id
        self._flight.begin()

    async def close(self) -> None:
        await self._flight.close()

    async def _send_waiting(self) -> None:
        while self._waiting:
            reported, self._waiting = self._waiting, {}
            try:
                response = await self._requests.send(
                    AssignReplicasToDirsRequest, directories=_directories(reported)
                )
                if response.error_code is not ErrorCode.none:
                    raise KafkaError(response.error_code, "the controller refused it")
            except KafkaError as error:
                logger.warning(
                    "The directories of %d replicas could not be reported: %s", len(reported), error
                )
                self._waiting = reported | self._waiting
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                _log_refused(response)


def _directories(reported: Mapping[TopicIdPartition, UUID]) -> tuple[DirectoryData, ...]:
    by_directory: dict[UUID, dict[UUID, list[PartitionData]]] = {}
    for key, directory_id in reported.items():
        topics = by_directory.setdefault(directory_id, {})
        topics.setdefault(key.topic_id, []).append(PartitionData(partition_index=key.partition))
    return tuple(
        DirectoryData(
            id_=directory_id,
            topics=tuple(
                TopicData(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
        )
        for directory_id, topics in by_directory.items()
    )


def _log_refused(response: Any) -> None:
    for directory in response.directories:
        for topic in directory.topics:
            for partition in topic.partitions:
                if partition.error_code is not ErrorCode.none:
                    logger.info(
                        "The controller refuses directory %s for %s-%d: %s",
                        directory.id_,
                        topic.topic_id,
                        partition.partition_index,
                        partition.error_code.name,
                    )
