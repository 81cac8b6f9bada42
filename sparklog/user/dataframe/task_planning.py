"""The tasks of a read: offset ranges, each with the part of it that comes from the object store."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from sparklog.node.remote_log.uri import RemoteUriError
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.options import ReadOptions
from sparklog.user.dataframe.planning import OffsetRange, split_ranges
from sparklog.user.dataframe.range_reader import OffsetRangePartition

if TYPE_CHECKING:
    from sparklog.user.dataframe.remote.history import History
    from sparklog.user.dataframe.remote.history_planner import HistoryPlanner


class TaskPlanner:
    """Plans a batch query, or one micro-batch of a stream after the other."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._histories: HistoryPlanner | None = None

    def plan(
        self,
        cluster: ClusterClient,
        ranges: Sequence[OffsetRange],
        topic_ids: Mapping[TopicPartition, UUID | None],
    ) -> list[OffsetRangePartition]:
        """Return one offset range for each task.

        Raises:
            DataSourceOptionError: the object store's URI or an option of it is not usable.
        """
        histories = self._planned_histories(cluster, ranges, topic_ids)
        tasks = []
        for each in split_ranges(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        ):
            history = histories.get(each.topic_partition)
            if history is not None:
                history = history.within(each.start_offset, each.end_offset)
            tasks.append(OffsetRangePartition(each, topic_ids[each.topic_partition], history))
        return tasks

    def _planned_histories(
        self,
        cluster: ClusterClient,
        ranges: Sequence[OffsetRange],
        topic_ids: Mapping[TopicPartition, UUID | None],
    ) -> "Mapping[TopicPartition, History]":
        if self._options.store is None:
            return {}
        if self._histories is None:
            # Parquet and the stores' clients are loaded only where there is a tier.
            from sparklog.user.dataframe.remote.history_planner import HistoryPlanner

            self._histories = HistoryPlanner(
                self._options.store, read_committed=self._options.fetch.read_committed
            )
        try:
            return self._histories.plan(cluster, ranges, topic_ids)
        except RemoteUriError as error:
            raise DataSourceOptionError(str(error)) from None
