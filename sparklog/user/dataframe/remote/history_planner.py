"""Planning of histories on the driver: which part of each range comes from the object store.

Brokers are asked first: a range behind their last tiered offset needs no access to the store. The manifest of
each other partition is read once a plan. Everything here is an optimization: a partition for which an answer
or a manifest is missing is read from brokers, which have all records.

Rules, by which both ways give the same rows:
- A client that may not fetch a topic gets nothing of it from the store.
- In the log of a topic that is not compacted, and for read_committed, records below the manifest's end are
  the same in the log and in the tier. Otherwise the seam is where the leader's disk begins, below which
  brokers read the tier themselves.
- The log start is the leader's: DeleteRecords moves it at once, and the manifest's only later. A range that
  begins below it is read from brokers, which report the loss.
- A leader that does not know its tier yet, as for a moment after its election, or does not answer, is asked
  again for `_PATIENCE_S`, and so is a partition without a leader, since one query through brokers may cost
  more than all others of a day. Partitions that stay unknown have no effect on the others.
- A manifest of a higher leader epoch than the leader's was written by another application, which has taken
  the store and goes on with a history of its own.

A stream plans many batches with one planner. It keeps a history while its batches lie within, for which it
asks the leader for the log start alone, and asks no broker about a partition that was lately at the end of
its tier. Both are forgotten after `_REMEMBERED_MS` or in a new leader epoch, and a failure much sooner.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.node.clocks import monotonic_ms
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_encoding import ManifestFormatError
from sparklog.node.remote_log.object_store import ObjectMissingError, ObjectStore, StoreError
from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.node.remote_log.stored_manifest import read_manifest
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import LeaderEpoch, Offset, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.offsets import last_tiered_offsets, local_log_start_offsets, log_start_offsets
from sparklog.user.client.topic_configs import describe_topic_configs
from sparklog.user.client.topic_descriptions import readable_topics
from sparklog.user.client.topics import Leader
from sparklog.user.dataframe.planning import OffsetRange
from sparklog.user.dataframe.remote.history import History, history_of
from sparklog.user.dataframe.remote.store_thread import opened, within_limit
from sparklog.user.dataframe.warn_once import warn_once

logger = logging.getLogger(__name__)

_CLEANUP_POLICY: Final = "cleanup.policy"
_MANIFESTS_AT_A_TIME: Final = 16
_REMEMBERED_MS: Final = 30_000
_FAILURE_REMEMBERED_MS: Final = 1_000
"""So that a stream does not ask for a manifest with each small batch that cannot be had."""
_PATIENCE_S: Final = (0.1, 0.2, 0.4, 0.8)
"""The pauses between questions to a leader that does not lead yet, or does not know its tier yet."""

_OF_ONE_PARTITION: Final = frozenset({ErrorCode.leader_not_available, ErrorCode.unknown_topic_or_partition})
"""Errors of a leader's look-up that say nothing of other partitions."""

TopicIds = Mapping[TopicPartition, UUID | None]


class _Known(NamedTuple):
    """The findings of an earlier plan about a partition."""

    topic_id: UUID | None
    leader_epoch: LeaderEpoch | None
    """None if the leader was not known."""
    history: History | None
    """None if the tier had nothing of the range."""
    until_ms: int


class HistoryPlanner:
    def __init__(
        self, location: StoreLocation, *, read_committed: bool, now_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._location: Final = location
        self._read_committed: Final = read_committed
        self._now_ms: Final = now_ms
        self._known: dict[TopicPartition, _Known] = {}
        self._impatient_until_ms: int | None = None
        """Leaders that do not know their tiers are not waited for before: a stream goes on meanwhile."""

    def plan(
        self, cluster: ClusterClient, ranges: Sequence[OffsetRange], topic_ids: TopicIds
    ) -> dict[TopicPartition, History]:
        """Return the history of each partition that has one in its range.

        Raises:
            RemoteUriError: the store's URI or an option is not usable.
        """
        now_ms = self._now_ms()
        self._known = {each: known for each, known in self._known.items() if now_ms < known.until_ms}
        kept: dict[OffsetRange, History] = {}
        unknown: list[OffsetRange] = []
        for each in ranges:
            topic_id, known = topic_ids.get(each.topic_partition), self._known.get(each.topic_partition)
            if not each.size or topic_id is None:
                continue
            if known is None or (known.topic_id, known.leader_epoch) != (topic_id, _epoch(cluster, each)):
                unknown.append(each)
            elif known.history is not None:
                history = known.history.within(each.start_offset, each.end_offset)
                if history is None or history.end_offset < each.end_offset:
                    unknown.append(each)
                else:
                    kept[each] = history
        histories = self._still_readable(cluster, kept) if kept else {}
        found = self._found(cluster, unknown, topic_ids) if unknown else {}
        for each in unknown:
            whole = found.get(each.topic_partition)
            history = None if whole is None else whole.within(each.start_offset, each.end_offset)
            if history is not None:
                histories[each.topic_partition] = history
            self._known[each.topic_partition] = _Known(
                topic_ids[each.topic_partition],
                _epoch(cluster, each),
                None if history is None else whole,
                now_ms + (_REMEMBERED_MS if each.topic_partition in found else _FAILURE_REMEMBERED_MS),
            )
        return histories

    def _still_readable(
        self, cluster: ClusterClient, kept: Mapping[OffsetRange, History]
    ) -> dict[TopicPartition, History]:
        """Return the histories whose ranges do not begin below their log start."""
        try:
            leaders = _leaders(cluster, [each.topic_partition for each in kept])
            log_starts = log_start_offsets(cluster, _brokers(leaders))
        except KafkaError as error:
            logger.warning("The tier is not read, since no broker gave a log start: %s", error)
            return {}
        return {
            each.topic_partition: history
            for each, history in kept.items()
            if log_starts.get(each.topic_partition, each.end_offset) <= each.start_offset
        }

    def _found(
        self, cluster: ClusterClient, ranges: Sequence[OffsetRange], topic_ids: TopicIds
    ) -> Mapping[TopicPartition, History | None]:
        """Return the history of each partition, None if it has none; those that failed are missing."""
        try:
            return self._asked(cluster, {each.topic_partition: each for each in ranges}, topic_ids)
        except KafkaError as error:
            logger.warning("The tier is not read, since no broker described it: %s", error)
        return {}

    def _asked(
        self, cluster: ClusterClient, ranges: Mapping[TopicPartition, OffsetRange], topic_ids: TopicIds
    ) -> dict[TopicPartition, History | None]:
        """Return the histories of partitions whose range begins in the tier, up to their seams.

        Raises:
            KafkaError: no broker answers.
            RemoteUriError: the store's URI or an option is not usable.
        """
        last_tiered = self._last_tiered(cluster, list(ranges))
        leaders = _leaders(cluster, list(ranges))
        known = {each: last for each, last in last_tiered.items() if last is not None and each in leaders}
        tiered = [each for each, last in known.items() if ranges[each].start_offset <= last]
        readable = readable_topics(cluster, {each.topic for each in tiered}) if tiered else frozenset()
        wanted = {each: topic_ids[each] for each in tiered if each.topic in readable}
        histories: dict[TopicPartition, History | None] = dict.fromkeys(
            each for each in ranges if each in known or each not in last_tiered
        )
        if not wanted:
            return histories
        log_starts = log_start_offsets(cluster, _brokers({each: leaders[each] for each in wanted}))
        seams = self._seams(cluster, {each: leaders[each] for each in wanted})
        store = opened(self._location)
        manifests = store.run(_manifests(store.store, wanted))
        for each in wanted:
            if each not in manifests or each not in log_starts:
                del histories[each]
                continue
            manifest = manifests[each]
            if manifest is not None and not _is_of_another_application(
                cluster, each, leaders[each], manifest
            ):
                whole = history_of(manifest)
                start = max(whole.start_offset, log_starts[each])
                histories[each] = whole.within(start, seams.get(each, whole.end_offset))
        return histories

    def _last_tiered(
        self, cluster: ClusterClient, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Offset | None]:
        """Return the leaders' last tiered offsets, None for those that are not known yet.

        Raises:
            KafkaError: no broker answers.
        """
        last_tiered = _last_tiered_now(cluster, partitions)
        is_patient = self._impatient_until_ms is None or self._now_ms() >= self._impatient_until_ms
        for pause_s in _PATIENCE_S if is_patient else ():
            unknown = [each for each, last in last_tiered.items() if last is None]
            if not unknown:
                break
            time.sleep(pause_s)
            for each in unknown:
                del last_tiered[each]
                cluster.forget_leader(each)
            last_tiered |= _last_tiered_now(cluster, unknown)
        if None in last_tiered.values():
            self._impatient_until_ms = self._now_ms() + _REMEMBERED_MS
        return last_tiered

    def _seams(
        self, cluster: ClusterClient, leaders: Mapping[TopicPartition, Leader]
    ) -> dict[TopicPartition, Offset]:
        """Return the seam of each partition that has another than the end of its manifest."""
        topics = {each.topic for each in leaders}
        policies = describe_topic_configs(cluster, topics, [_CLEANUP_POLICY])
        differing = {
            each: leader
            for each, leader in leaders.items()
            if not (self._read_committed and policies.get(each.topic, {}).get(_CLEANUP_POLICY) == "delete")
        }
        if not differing:
            return {}
        disk_starts = local_log_start_offsets(cluster, _brokers(differing))
        return {each: disk_starts.get(each, 0) for each in differing}


def _epoch(cluster: ClusterClient, wanted: OffsetRange) -> LeaderEpoch | None:
    try:
        return cluster.leader(wanted.topic_partition).leader_epoch
    except KafkaError:
        return None


def _leaders(cluster: ClusterClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leader]:
    """Return the leaders of the partitions that have one.

    Raises:
        KafkaError: no broker answers.
    """
    leaders: dict[TopicPartition, Leader] = {}
    for each in partitions:
        try:
            leaders[each] = cluster.leader(each)
        except KafkaError as error:
            if error.error_code not in _OF_ONE_PARTITION:
                raise
    return leaders


def _last_tiered_now(
    cluster: ClusterClient, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Offset | None]:
    leaders = _leaders(cluster, partitions)
    unknown: dict[TopicPartition, Offset | None] = dict.fromkeys(
        each for each in partitions if each not in leaders
    )
    return unknown | last_tiered_offsets(cluster, _brokers(leaders))


def _brokers(leaders: Mapping[TopicPartition, Leader]) -> dict[TopicPartition, int]:
    return {each: leader.broker_id for each, leader in leaders.items()}


def _is_of_another_application(
    cluster: ClusterClient, each: TopicPartition, leader: Leader, manifest: Manifest
) -> bool:
    if manifest.leader_epoch <= leader.leader_epoch:
        return False
    cluster.forget_leader(each)  # it may be a leader that was elected meanwhile
    elected = _leaders(cluster, [each]).get(each)
    return elected is None or manifest.leader_epoch > elected.leader_epoch


async def _manifests(store: ObjectStore, topic_ids: TopicIds) -> dict[TopicPartition, Manifest | None]:
    """Return the manifests of partitions, None for one that is gone, as of a topic that was just deleted.

    Partitions whose manifest cannot be read are missing, and have no effect on the others.
    """
    manifests: dict[TopicPartition, Manifest | None] = {}
    turns = asyncio.Semaphore(_MANIFESTS_AT_A_TIME)

    async def read(each: TopicPartition, topic_id: UUID) -> None:
        async with turns:
            try:
                reading = read_manifest(store, topic_id, each.partition)
                manifests[each] = (await within_limit(reading, store.uri)).manifest
            except ObjectMissingError:
                manifests[each] = None
            except (StoreError, ManifestFormatError) as error:
                warn_once(
                    f"Records of the tier are read through brokers, since the store cannot be read: {error}"
                )

    await asyncio.gather(
        *(read(each, topic_id) for each, topic_id in topic_ids.items() if topic_id is not None)
    )
    return manifests
