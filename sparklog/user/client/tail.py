"""Waiting for new records at the ends of partitions.

Each leader gets one Fetch of all its partitions, which it delays until there is a record or time is up
(KIP-227's sessions are not needed for that). One byte is requested, so that a leader sends one batch at most,
which is ignored.

An early empty response is followed by a pause (`early_answers`), in which the other leaders are still
watched.

A response that is outstanding at the end of a wait is awaited by the next one, if the offsets are the same;
so no request is repeated while nothing happens. After request.timeout.ms it is given up: a host that lost
power, or a NAT that lost its state, stays silent.
"""

import math
import select
import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from kio.schema.fetch.v16.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v16.response import FetchResponse

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, Offset, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.fetch_pause import early_pause_s


class _Asked(NamedTuple):
    request: FetchRequest
    sent_s: float
    due_s: float


class _Early(NamedTuple):
    request: FetchRequest
    answers: int
    """Number of consecutive responses that were empty although the leader could have waited for records."""
    again_s: float


class Tail:
    """The ends of some partitions; the only user of `cluster`'s connections."""

    def __init__(self, cluster: ClusterClient, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._asked: dict[BrokerId, _Asked] = {}
        """Unanswered request of each leader."""
        self._early: dict[BrokerId, _Early] = {}
        """Requests that leaders answer at once, without records."""

    def wait(self, positions: Mapping[TopicPartition, Offset], timeout_ms: int) -> bool:
        """Return True as soon as a partition may have a record at its position, False when time is up.

        A failure also gives True: the caller's next request for offsets then finds the cause.
        """
        ends_s = time.monotonic() + timeout_ms / 1000
        try:
            while time.monotonic() < ends_s:
                self._ask(positions, timeout_ms)
                paused = [early for broker_id, early in self._early.items() if broker_id not in self._asked]
                next_s = min([ends_s, *(early.again_s for early in paused)])
                left_s = max(0, next_s - time.monotonic())
                if not self._asked:  # there is nothing to wait at
                    time.sleep(left_s)
                    continue
                news = [self._has_news(broker_id) for broker_id in self._answered(left_s)]
                if any(news):
                    return True
            self._check_overdue()
        except KafkaError as error:
            self._give_up(positions)
            time.sleep(self._cluster.pause_ms(0, error) / 1000)
            return True
        return False

    def _answered(self, wait_s: float) -> set[BrokerId]:
        """Return the brokers from which something has come, waiting for the first."""
        # Not select(): it takes no descriptor above 1023, and a user's process may have more.
        poll = select.poll()
        waiting = {}
        pending = set()
        for broker_id in self._asked:
            channel = self._cluster.channel(broker_id)
            waiting[channel.fileno()] = broker_id
            poll.register(channel.fileno(), select.POLLIN)
            if channel.has_pending:
                pending.add(broker_id)
        readable = poll.poll(0 if pending else math.ceil(wait_s * 1000))
        return pending | {waiting[descriptor] for descriptor, _ in readable}

    def _check_overdue(self) -> None:
        now_s = time.monotonic()
        for broker_id, asked in self._asked.items():
            if asked.due_s <= now_s:
                raise KafkaError(
                    ErrorCode.request_timed_out,
                    f"broker {broker_id} did not answer within request.timeout.ms after it was due",
                )

    def _ask(self, positions: Mapping[TopicPartition, Offset], timeout_ms: int) -> None:
        """Send each leader the request for its partitions; take back all other requests."""
        requests = self._requests(positions, timeout_ms)
        for broker_id, asked in list(self._asked.items()):
            if requests.get(broker_id) != asked.request:
                self._has_news(broker_id)
        self._early = {
            broker_id: early
            for broker_id, early in self._early.items()
            if requests.get(broker_id) == early.request
        }
        now_s = time.monotonic()
        due_s = now_s + (timeout_ms + self._cluster.config.request_timeout_ms) / 1000
        for broker_id, request in requests.items():
            early = self._early.get(broker_id)
            if broker_id not in self._asked and (early is None or early.again_s <= now_s):
                self._asked[broker_id] = _Asked(request, now_s, due_s)
                self._cluster.channel(broker_id).send(request)

    def _requests(
        self, positions: Mapping[TopicPartition, Offset], timeout_ms: int
    ) -> dict[BrokerId, FetchRequest]:
        by_leader: defaultdict[BrokerId, defaultdict[str, list[FetchPartition]]]
        by_leader = defaultdict(lambda: defaultdict(list))
        for topic_partition, offset in sorted(positions.items()):
            leader = self._cluster.leader(topic_partition)
            by_leader[leader.broker_id][topic_partition.topic].append(
                FetchPartition(
                    partition=topic_partition.partition,
                    current_leader_epoch=leader.leader_epoch,
                    fetch_offset=offset,
                    partition_max_bytes=1,
                )
            )
        return {
            broker_id: FetchRequest(
                max_wait=timedelta(milliseconds=timeout_ms),
                min_bytes=1,
                max_bytes=1,
                isolation_level=int(self._read_committed),
                topics=tuple(
                    FetchTopic(topic_id=self._cluster.topic(name).topic_id, partitions=tuple(partitions))
                    for name, partitions in topics.items()
                ),
                forgotten_topics_data=(),
            )
            for broker_id, topics in by_leader.items()
        }

    def _has_news(self, broker_id: BrokerId) -> bool:
        """Take in a leader's response; return whether it has records."""
        response: FetchResponse = self._cluster.channel(broker_id).receive()
        asked = self._asked.pop(broker_id)
        partitions = [partition for topic in response.responses for partition in topic.partitions]
        for error_code in (response.error_code, *(partition.error_code for partition in partitions)):
            if error_code is not ErrorCode.none:
                raise KafkaError(error_code, "a leader refused the fetch at its log's end")
        has_news = any(partition.records for partition in partitions)
        self._note_early(broker_id, asked, has_news=has_news)
        return has_news

    def _note_early(self, broker_id: BrokerId, asked: _Asked, *, has_news: bool) -> None:
        """Begin a pause for a leader that answered early and without records."""
        before = self._early.pop(broker_id, None)
        if has_news:
            return
        answers = 0 if before is None or before.request != asked.request else before.answers
        now_s, max_wait_s = time.monotonic(), asked.request.max_wait.total_seconds()
        backoff = self._cluster.config.retry_backoff
        pause_s = early_pause_s(backoff, answers, now_s - asked.sent_s, max_wait_s)
        if pause_s:
            self._early[broker_id] = _Early(asked.request, answers + 1, now_s + pause_s)

    def _give_up(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Start over after a failure: a late response would be taken for the next request's."""
        for broker_id in self._asked:
            self._cluster.disconnect(broker_id)
        self._asked.clear()
        self._early.clear()
        for topic in {topic_partition.topic for topic_partition in positions}:
            self._cluster.forget(topic)
