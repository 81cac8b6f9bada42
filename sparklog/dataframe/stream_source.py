"""What a streaming query knows of its topics: where they end, what is new, which ranges to read.

One object a query, in the process that Spark keeps for it on the driver. It asks the cluster for offsets when
there is something new, and else waits at the ends of the partitions for at most `WAIT_MS`: Spark asks an idle
source every few milliseconds, and a record must not wait for Spark. Other sources of the query wait as long.

What was read already and is not there any more (a topic deleted or made anew, a log cut) is a loss of data:
an error, or with failOnDataLoss=false a warning, as in the connector.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final
from uuid import UUID

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.errors import ApiTimeoutError, UnknownTopicError
from sparklog.client.offsets import SpecialOffset
from sparklog.client.tail import Tail
from sparklog.clocks import monotonic_ms
from sparklog.dataframe.options import Assigned, StreamReadOptions, Subscribed, Topics
from sparklog.dataframe.planning import OffsetRange
from sparklog.dataframe.resolution import listed, resolve_partitions, resolve_starts
from sparklog.dataframe.trigger_limits import NO_LIMITS, Admission
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import Offset, TopicPartition

__all__ = ["WAIT_MS", "StreamSource"]

logger = logging.getLogger(__name__)

WAIT_MS: Final = 100
PARTITIONS_MAX_AGE_MS: Final = 1_000
"""How long a new topic or partition may go unseen."""

Offsets = Mapping[TopicPartition, Offset]


class StreamSource:
    """The topics of one query."""

    def __init__(self, options: StreamReadOptions) -> None:
        self._options = options.read
        self._cluster = ClusterClient(options.read.client)
        self._waiting = ClusterClient(options.read.client)
        self._tail = Tail(self._waiting, read_committed=options.read.fetch.read_committed)
        self._limits = options.limits
        self._limited = Admission(options.limits)
        self._unlimited = Admission(NO_LIMITS)
        self._partitions: dict[TopicPartition, UUID | None] = {}
        self._partitions_known_ms: int | None = None
        self._gone: set[str | None] = set()
        """Topics that were named and were not there when they were asked for last."""
        self._caught_up_at: Offsets | None = None
        """Where the query stood when nothing was new."""
        self._held: Offsets | None = None
        self._holds = False
        self.latest_known: Offsets | None = None
        """The latest offsets when they were last asked for."""

    def starts(self) -> Offsets:
        """Return where a new query begins.

        Raises:
            UnknownTopicError, DataSourceOptionError, DataLossError, KafkaError: as `resolve_starts`, and
                `resolve_partitions`, raise them.
        """
        self._refresh_partitions()
        return resolve_starts(self._cluster, self._options, self._partitions)

    def hold_latest(self) -> None:
        """Take for the latest offsets, from now on, what they are when next asked for."""
        self._holds = True
        # No batch waits for more, since no more can come: the query would end with the rest unread.
        self._limited = Admission(self._limits.at_once())

    def ends(self, starts: Offsets, *, limited: bool) -> Offsets:
        """Return where a micro-batch ends that begins at `starts`; `starts` itself when there is none to be.

        Raises:
            DataLossError: a topic is gone.
            KafkaError: the cluster cannot be asked.
        """
        self._find_new_partitions()
        if self._caught_up_at == starts and not self._tail.wait(starts, WAIT_MS):
            return starts
        latest = self._latest(starts)
        if not latest:  # nothing is there to read: what was read already stays noted
            self._tail.wait({}, WAIT_MS)
            return starts
        if latest == starts:
            self._caught_up_at = starts
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
        """Return what lies between, each range with the id of its topic.

        Raises:
            DataLossError: some of it is known to be gone.
            KafkaError: the cluster cannot be asked.
        """
        self._find_new_partitions()
        if gone := starts.keys() - ends.keys():
            self._options.report_data_loss(
                f"{', '.join(map(str, sorted(gone)))} {'is' if len(gone) == 1 else 'are'} gone"
            )
        new = [each for each in ends if each not in starts and each in self._partitions]
        earliest = self._earliest(new)
        for each, offset in earliest.items():
            if offset > 0:
                self._options.report_data_loss(f"{each} was added and starts at offset {offset} instead of 0")
        ranges = []
        for each, end in ends.items():
            start = starts.get(each, earliest.get(each))
            if each not in self._partitions or start is None:
                self._options.report_data_loss(f"{each} is gone")
            elif start > end:
                self._options.report_data_loss(f"{each} was read up to offset {start}, and ends at {end} now")
            else:
                ranges.append((OffsetRange(each, start, end), self._partitions[each]))
        return ranges

    def close(self) -> None:
        """Let go of the connections."""
        self._cluster.close()
        self._waiting.close()

    def _latest(self, starts: Offsets) -> Offsets:
        if self._held is not None:
            return self._held
        latest = self._listed_beyond(starts)
        self.latest_known = latest
        if self._holds:
            self._held = latest
        return latest

    def _listed_beyond(self, starts: Offsets) -> Offsets:
        """Ask for the latest offsets; for a while again if one lies before where it was already.

        A new leader learns how far its partition is committed a moment after it leads.
        """
        latest: dict[TopicPartition, Offset] = {}

        def ask() -> None:
            latest.clear()
            latest.update(self._listed(lambda: self._partitions, SpecialOffset.LATEST))
            for each, offset in latest.items():
                if offset < starts.get(each, 0):
                    raise KafkaError(
                        ErrorCode.offset_not_available, f"{each} ends at {offset}, before {starts[each]}"
                    )

        try:
            self._cluster.retry(
                "listing the latest offsets", ask, timeout_ms=self._options.client.unknown_topic_timeout_ms
            )
        except ApiTimeoutError:
            if latest.keys() != self._partitions.keys():
                raise
        return latest

    def _earliest(self, new: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return where partitions begin; those that have gone meanwhile are left out."""
        return self._listed(
            lambda: [each for each in new if each in self._partitions], SpecialOffset.EARLIEST
        )

    def _listed(
        self, partitions: Callable[[], Collection[TopicPartition]], which: SpecialOffset
    ) -> dict[TopicPartition, Offset]:
        """List offsets; once more, of what is left, if a topic is gone that was there a moment ago."""
        try:
            return listed(self._cluster, self._options, partitions(), which)
        except UnknownTopicError:
            self._refresh_partitions()
            return listed(self._cluster, self._options, partitions(), which)

    def _find_new_partitions(self) -> None:
        now_ms = monotonic_ms()
        known_ms = self._partitions_known_ms
        if self._held is None and (known_ms is None or now_ms - known_ms >= PARTITIONS_MAX_AGE_MS):
            self._refresh_partitions()

    def _refresh_partitions(self) -> None:
        partitions: dict[TopicPartition, UUID | None] = {}
        parts = list(_one_by_one(self._options.topics))
        # All at first: one request asks for whatever is outdated.
        for name, _ in parts:
            if name is not None:
                self._cluster.forget(name)
        for name, topics in parts:
            # One that is known to be gone is not waited for again: this comes every second.
            timeout_ms = 0 if name in self._gone else None
            try:
                partitions |= resolve_partitions(self._cluster, topics, timeout_ms=timeout_ms)
            except UnknownTopicError as error:
                if self._partitions_known_ms is None or self._options.fail_on_data_loss:
                    raise
                if name not in self._gone:
                    logger.warning("%s; going on without it (failOnDataLoss is false)", error)
                    self._gone.add(name)
            else:
                self._gone.discard(name)
        for each in partitions.keys() & self._partitions.keys():
            if partitions[each] != self._partitions[each]:
                self._options.report_data_loss(f"topic {each.topic} was deleted and created anew")
        if partitions != self._partitions:
            self._partitions = partitions
            self._caught_up_at = None
        self._partitions_known_ms = monotonic_ms()


def _one_by_one(topics: Topics) -> Iterator[tuple[str | None, Topics]]:
    """Part what is named by topic: one that is gone takes no other with it. A pattern names none."""
    if isinstance(topics, Subscribed):
        yield from ((name, Subscribed((name,))) for name in topics.topics)
    elif isinstance(topics, Assigned):
        for name in {each.topic for each in topics.partitions}:
            yield name, Assigned(frozenset(each for each in topics.partitions if each.topic == name))
    else:
        yield None, topics
