"""AlterReplicaLogDirs: move replicas to other directories of this broker (KIP-113). Versions 1 and 2.

Source: Kafka's KafkaApis.handleAlterReplicaLogDirsRequest.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from sparklog.executor.api.services import PartitionServices
from sparklog.executor.log_dir_moves.directory_moves import DirectoryMoves
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.serving.turns import held
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicPartition

logger = logging.getLogger(__name__)


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    moves = services.replicas.directory_moves
    return {ApiKey.ALTER_REPLICA_LOG_DIRS: partial(alter_replica_log_dirs, moves=moves)}


async def alter_replica_log_dirs(request: Request, moves: DirectoryMoves) -> Response:
    """Answer once every move has begun or was refused; moves begin one after the other."""
    body = await upgrade_in_steps(request.body)
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            of_topic = results.setdefault(topic.name, [])
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition)
                error_code = await _begin(moves, topic_partition, directory.path)
                of_topic.append(
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=error_code)
                )
                await turn()
            await turn()
        await turn()
    topics = []
    for name, partitions in results.items():
        topics.append(AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(partitions)))
        await turn()
    return unthrottled(AlterReplicaLogDirsResponse, results=tuple(topics))


async def _begin(moves: DirectoryMoves, topic_partition: TopicPartition, path: str) -> ErrorCode:
    try:
        wanted = moves.wanted(topic_partition, path)
        if wanted is not None:
            # A task goes on with what has begun, also when its client is gone.
            await held(asyncio.get_running_loop().create_task(moves.move(*wanted)))
    except KafkaError as error:
        logger.debug("%s is not moved to %s: %s", topic_partition, path, error)
        return error.error_code
    return ErrorCode.none
