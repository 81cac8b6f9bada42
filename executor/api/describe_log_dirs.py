"""DescribeLogDirs: the replicas of each data directory, their sizes and lags (KIP-113, KIP-827).

A directory that is offline is named with KAFKA_STORAGE_ERROR and without its partitions. Volumes' sizes
are read in another thread: a network volume may never answer.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from sparklog.executor.api.services import PartitionServices
from sparklog.executor.logs.log_store import LogStore
from sparklog.executor.partitions.future_replica import FutureReplica
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.serving.turns import held
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    table, store = services.replicas.table, services.replicas.store
    return {ApiKey.DESCRIBE_LOG_DIRS: partial(describe_log_dirs, table=table, store=store)}


async def describe_log_dirs(request: Request, table: PartitionTable, store: LogStore) -> Response:
    """Answer for the named partitions, or for all; every directory is listed in either case."""
    body = await upgrade_in_steps(request.body)
    wanted = None
    if body.topics is not None:
        wanted = {(topic.topic, partition) for topic in body.topics for partition in topic.partitions}
    by_directory: dict[int, dict[str, list[Any]]] = {}
    for replica in list(table):
        await turn()
        if wanted is None or tuple(replica.topic_partition) in wanted:
            topics = by_directory.setdefault(id(store.directory_of(replica.log)), {})
            topics.setdefault(replica.topic_partition.topic, []).append(_partition(replica))
            if replica.future is not None:
                topics = by_directory.setdefault(id(store.directory_of(replica.future.log)), {})
                topics.setdefault(replica.topic_partition.topic, []).append(_copy(replica.future))
    volumes: dict[int, tuple[int, int] | None] = {}
    for directory in store.directories:
        if directory.failure is None:
            asked = store.ask_volume(directory)
            await held(asked)
            volumes[id(directory)] = asked.result()
    return unthrottled(
        DescribeLogDirsResponse,
        error_code=ErrorCode.none,
        results=tuple(
            _offline(directory)
            if directory.failure is not None or (volume := volumes.get(id(directory))) is None
            else DescribeLogDirsResult(
                error_code=ErrorCode.none,
                log_dir=str(directory.path),
                topics=tuple(
                    DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
                    for name, partitions in by_directory.get(id(directory), {}).items()
                ),
                total_bytes=volume[0],
                usable_bytes=volume[1],
            )
            for directory in store.directories
        ),
    )


def _offline(directory: LogDirectory) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=ErrorCode.kafka_storage_error, log_dir=str(directory.path), topics=()
    )


def _partition(replica: Replica) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=replica.topic_partition.partition,
        partition_size=replica.log.size_bytes,
        offset_lag=max(0, replica.high_watermark - replica.log.log_end_offset),
        is_future_key=False,
    )


def _copy(future: FutureReplica) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=future.topic_partition.partition,
        partition_size=future.log.size_bytes,
        offset_lag=future.lag,
        is_future_key=True,
    )
