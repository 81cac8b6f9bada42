"""A streaming query's view of its topics: their ends, new partitions, the ranges to read.

One object for each query, in the process that Spark keeps for it on the driver. It lists offsets when there
are new records, and otherwise waits at the ends of the partitions for at most `WAIT_MS`: Spark asks an idle
source every few milliseconds, and a record must not wait for Spark. Other sources of the query wait as long.

Records that were read and are missing now (a topic deleted or created again, a truncated log) are a loss of
data: an error, or with failOnDataLoss=false a warning, as in the connector. A topic created again is then
read from its start: a batch without rows moves the position there, so that the checkpoint has it, too.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from sparklog.node.clocks import monotonic_ms
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.errors import ApiTimeoutError, UnknownTopicError
from sparklog.user.client.offsets import SpecialOffset
from sparklog.user.client.tail import Tail
from sparklog.user.dataframe.options import StreamReadOptions
from sparklog.user.dataframe.partition_discovery import PartitionDiscovery
from sparklog.user.dataframe.planning import OffsetRange
from sparklog.user.dataframe.range_reader import OffsetRangePartition
from sparklog.user.dataframe.resolution import listed, listed_ends, resolve_starts
from sparklog.user.dataframe.task_planning import TaskPlanner
from sparklog.user.dataframe.trigger_limits import NO_LIMITS, Admission

logger = logging.getLogger(__name__)

WAIT_MS: Final = 100

Offsets = Mapping[TopicPartition, Offset]


class StreamSource:
    def __init__(self, options: StreamReadOptions) -> None:
        self._options = options.read
        self._cluster = ClusterClient(options.read.client)
        self._waiting = ClusterClient(options.read.client)
        self._tail = Tail(self._waiting, read_committed=options.read.fetch.read_committed)
        self._limits = options.limits
        self._limited = Admission(options.limits)
        self._unlimited = Admission(NO_LIMITS)
        self._discovery = PartitionDiscovery(self._cluster, self._options)
        self._tasks = TaskPlanner(self._options)
        self._caught_up_at: tuple[Offsets, Collection[TopicPartition]] | None = None
        """Position of the query when there was nothing new, and the partitions of that time."""
        self._held: Offsets | None = None
        self._holds = False
        self.latest_known: Offsets | None = None
        """The latest offsets as last listed."""

    def starts(self) -> Offsets:
        """Return the start of a new query.

        Raises:
            UnknownTopicError: a named topic does not exist.
            DataSourceOptionError, DataLossError, KafkaError: as `resolve_starts` and `resolve_partitions`
                raise them.
        """
        self._discovery.refresh(is_new_query=True)
        return resolve_starts(self._cluster, self._options, self._discovery.partitions)

    def hold_latest(self) -> None:
        """Fix the latest offsets on their next use."""
        self._holds = True
        # No batch waits for more, since no more can come: the query would end with the rest unread.
        self._limited = Admission(self._limits.at_once())

    def ends(self, starts: Offsets, *, limited: bool) -> Offsets:
        """Return the end of a micro-batch that begins at `starts`; `starts` itself if there is no batch.

        Raises:
            DataLossError: a topic is gone.
            KafkaError: the cluster cannot be asked.
        """
        self._find_new_partitions(starts)
        restarted = self._restarted(starts)
        if restarted != starts:
            return restarted
        is_caught_up = self._caught_up_at == (starts, self._discovery.partitions)
        if is_caught_up and not self._tail.wait(starts, WAIT_MS):
            return starts
        latest = self._latest(starts)
        if not latest:  # nothing is there to read: what was read already stays noted
            self._tail.wait({}, WAIT_MS)
            return starts
        if latest == starts:
            self._caught_up_at = starts, self._discovery.partitions
            return starts
        self._caught_up_at = None
        new = [each for each in latest if each not in starts]
        known = {**self._earliest(new), **starts}
        admission = self._limited if limited else self._unlimited
        readable = {each: offset for each, offset in latest.items() if each in known}
        ends = admission.ends(known, readable, monotonic_ms())
        if ends is None:
            self._tail.wait(latest, WAIT_MS)
            return starts
        return ends

    def ranges(self, starts: Offsets, ends: Offsets) -> list[tuple[OffsetRange, UUID | None]]:
        """Return the ranges between positions, each with the id of its topic.

        Raises:
            DataLossError: some offsets are known to be gone.
            KafkaError: the cluster cannot be asked.
        """
        self._find_new_partitions(starts)
        if gone := starts.keys() - ends.keys():
            self._options.report_data_loss(
                f"{', '.join(map(str, sorted(gone)))} {'is' if len(gone) == 1 else 'are'} gone"
            )
        earliest = self._earliest([each for each in ends if each not in starts])
        for each, offset in earliest.items():
            self._report_beginning(each, "added", offset)
        starts = {**earliest, **starts}
        self._report_steps_back(starts, ends)
        ranges = []
        for each, end in ends.items():
            start = starts.get(each)
            if start is None or each not in self._discovery.partitions:
                self._options.report_data_loss(f"{each} is gone")
            elif start <= end and each.topic not in self._discovery.recreated:
                ranges.append((OffsetRange(each, start, end), self._discovery.partitions[each]))
            elif start < end:
                self._options.report_data_loss(
                    f"offsets {start} to {end} (exclusive) of {each} went with the topic that was deleted"
                )
        return ranges

    def tasks(self, ranges: Sequence[tuple[OffsetRange, UUID | None]]) -> list[OffsetRangePartition]:
        """Return the tasks of a batch, by the ranges of `ranges`.

        Raises:
            DataSourceOptionError: the object store's URI or an option of it is not usable.
        """
        return self._tasks.plan(
            self._cluster,
            [offset_range for offset_range, _ in ranges],
            {offset_range.topic_partition: topic_id for offset_range, topic_id in ranges},
        )

    def close(self) -> None:
        self._cluster.close()
        self._waiting.close()

    def _latest(self, starts: Offsets) -> Offsets:
        if self._held is not None:
            return self._held
        latest = self._listed_beyond(lambda: self._discovery.partitions, starts)
        self.latest_known = latest
        if self._holds:
            self._held = latest
        return latest

    def _listed_beyond(
        self, partitions: Callable[[], Collection[TopicPartition]], starts: Offsets
    ) -> dict[TopicPartition, Offset]:
        """List the present ends of reading from `starts`; retry for a while if records before them seem lost.

        A new leader learns the high watermark of its partition a moment after it leads.
        """
        ends: dict[TopicPartition, Offset] = {}

        def ask() -> None:
            ends.clear()
            ends.update(
                self._of_what_is_there(
                    lambda: listed_ends(
                        self._cluster, self._options, {each: starts.get(each, 0) for each in partitions()}
                    )
                )
            )
            for each, offset in ends.items():
                if offset < starts.get(each, 0):
                    raise KafkaError(
                        ErrorCode.offset_not_available, f"{each} ends at {offset}, before {starts[each]}"
                    )

        try:
            self._cluster.retry(
                "listing the latest offsets", ask, timeout_ms=self._options.client.unknown_topic_timeout_ms
            )
        except ApiTimeoutError:
            if ends.keys() != set(partitions()):
                raise
        return ends

    def _report_steps_back(self, starts: Offsets, ends: Offsets) -> None:
        """Report partitions that end before their start, as a loss or as a repetition."""
        back = {each: starts[each] for each, end in ends.items() if starts.get(each, 0) > end}
        if not back:
            return

        def there() -> list[TopicPartition]:
            # Topics created again end where the new ones begin, which is reported already.
            recreated = self._discovery.recreated
            return [
                each for each in back if each in self._discovery.partitions and each.topic not in recreated
            ]

        for each, end_now in self._listed_beyond(there, back).items():
            start, end = back[each], ends[each]
            if end_now < start:
                self._options.report_data_loss(
                    f"{each} was read up to offset {start}, and ends at {end} now; records below are not read"
                )
            else:
                logger.warning(
                    "%s was read up to offset %d, and the checkpoint goes back to %d, although nothing was "
                    "lost: the records in between are read again",
                    *(each, start, end),
                )

    def _restarted(self, starts: Offsets) -> Offsets:
        """Return `starts` with the partitions of recreated topics moved to their log start offsets."""
        recreated = [each for each in starts if each.topic in self._discovery.recreated]
        earliest = self._earliest(recreated)
        restarted = {**starts, **earliest}
        if restarted == starts:
            self._discovery.settle()
        else:
            for each, offset in earliest.items():
                self._report_beginning(each, "created again", offset)
        return restarted

    def _report_beginning(self, each: TopicPartition, how: str, offset: Offset) -> None:
        if offset > 0:
            self._options.report_data_loss(f"{each} was {how} and starts at offset {offset} instead of 0")

    def _earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the log start offsets of partitions; missing partitions are left out."""
        return self._of_what_is_there(
            lambda: listed(
                self._cluster,
                self._options,
                [each for each in partitions if each in self._discovery.partitions],
                SpecialOffset.EARLIEST,
            )
        )

    def _of_what_is_there(
        self, ask: Callable[[], dict[TopicPartition, Offset]]
    ) -> dict[TopicPartition, Offset]:
        """List offsets; repeat for the remaining partitions if a topic has just disappeared."""
        try:
            return ask()
        except UnknownTopicError:
            self._discovery.refresh()
            return ask()

    def _find_new_partitions(self, position: Offsets) -> None:
        if self._held is None:
            self._discovery.refresh_if_old(position.keys())
