"""Client's view of a cluster: brokers, topics and leaders, and one connection to each broker.

Everything here blocks and belongs to one thread. Order for callers: `topic` (or `topics`) first, then
`leader` and `channel`; after a retriable error of a partition `leader_named` if the response names the leader
(KIP-951), else `forget_leader`; after an error of a connection `disconnect`; then retry through `retry`,
which bounds the attempts by time. A known leader is never replaced by one of an older leader epoch, and no
partition of a topic is lost, whichever broker answered.

Requests have fixed versions that Kafka supports since 3.7, so nothing is negotiated, and a topic that was
deleted and created again is recognised by its id (KIP-516).
"""

import itertools
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self, TypeVar

from kio.schema.metadata.v11.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v11.response import MetadataResponse

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.clocks import monotonic_ms
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, TopicPartition
from sparklog.user.client.config import ClientConfig
from sparklog.user.client.connecting import connected
from sparklog.user.client.errors import ApiTimeoutError, ClusterStoppedError, UnknownTopicError
from sparklog.user.client.failed_replicas import FAILED_REPLICAS
from sparklog.user.client.nearest_replica import BrokerPlace, ReaderPlace
from sparklog.user.client.topics import Leader, Topic, described, not_behind

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

TOPIC_MAX_AGE_MS: Final = 300_000
"""Kafka clients' default of metadata.max.age.ms: a topic may be created again, or get more partitions."""
_ENDING: Final = frozenset({ErrorCode.concurrent_transactions, ErrorCode.unstable_offset_commit})
_ENDING_BACKOFF: Final = ExponentialBackoff(first_ms=2, max_ms=1_000, even_pauses=5)


class ClusterClient:
    """A client of the cluster at `config.bootstrap_servers`; connects on its first request."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._brokers: dict[BrokerId, tuple[str, int]] = {}
        self._racks: dict[BrokerId, str | None] = {}
        self._topics: dict[str, Topic] = {}
        self._outdated: set[str] = set()
        """Topics whose metadata is fetched again before a leader of theirs is returned."""
        self._channels: dict[BrokerId, BlockingChannel] = {}
        self._lost: set[BrokerId] = set()
        """Brokers whose connection failed and was not made again since."""
        self._random = random.Random()

    def metadata(self, names: tuple[str, ...] | None = None) -> MetadataResponse:
        """Fetch the metadata of topics from a broker; remembers the brokers' addresses.

        `names` None means all topics.

        Raises:
            ApiTimeoutError: no broker answered within `api_timeout_ms`.
        """
        return self.retry("fetching the metadata", lambda: self._ask_any_broker(names, create=False))

    def find_brokers(self) -> None:
        """Fetch the brokers' addresses again: a restarted broker may have another one.

        Raises:
            KafkaError: no broker answered.
        """
        self._ask_any_broker((), create=False)

    def topics(self) -> Mapping[str, Topic]:
        """Fetch all topics from a broker, internal ones included.

        Raises:
            ApiTimeoutError: no broker answered within `api_timeout_ms`.
        """

        def ask() -> Mapping[str, Topic]:
            response, learned_ms = self._ask_any_broker(None, create=False), monotonic_ms()
            return {
                topic.name: not_behind(described(topic, learned_ms), self._topics.get(topic.name))
                for topic in response.topics
            }

        return self.retry("listing the topics", ask)

    def topic(self, name: str, *, create: bool = False, timeout_ms: int | None = None) -> Topic:
        """Return a topic, from memory if its metadata is younger than `TOPIC_MAX_AGE_MS`.

        With `create` the broker may create it (auto.create.topics.enable), and the call waits until one
        partition has a leader: a partition without a leader does not block the others.

        Raises:
            UnknownTopicError: it did not appear within `timeout_ms` (else `unknown_topic_timeout_ms`).
            KafkaError: the name is illegal, or access is denied.
            ApiTimeoutError: no broker answered, or a new topic got no leaders.
        """
        known, since_ms = self._topics.get(name), monotonic_ms() - TOPIC_MAX_AGE_MS
        if known is not None and name not in self._outdated and known.learned_ms > since_ms:
            return known
        wait_ms = self.config.unknown_topic_timeout_ms if timeout_ms is None else timeout_ms

        def ask() -> Topic:
            topic = self._refreshed(name, create=create)
            if create and set(topic.leaders.values()) == {None}:
                raise KafkaError(ErrorCode.leader_not_available, f"no partition of {name} has a leader")
            return topic

        return self.retry(
            f"finding topic {name}", ask, timeout_ms=wait_ms if create else None, unknown_topic_ms=wait_ms
        )

    def leader(self, topic_partition: TopicPartition, *, learned_after_ms: int | None = None) -> Leader:
        """Return a partition's leader; ask a broker if it is unknown or was forgotten.

        A broker is also asked if the leader was learned before `learned_after_ms` (monotonic): after a
        failure, the topic may have been refreshed for another partition before the leader changed.

        Raises:
            KafkaError: LEADER_NOT_AVAILABLE (retriable) while there is none; the errors of `topic`.
        """
        topic = None
        if topic_partition.topic not in self._outdated:
            topic = self._topics.get(topic_partition.topic)
        leader = None
        if topic is not None and (learned_after_ms is None or topic.learned_ms >= learned_after_ms):
            leader = topic.leaders.get(topic_partition.partition)
        if leader is None:
            topic = self._refreshed(topic_partition.topic, create=False)
            if topic_partition.partition not in topic.leaders:
                raise UnknownTopicError(
                    f"partition {topic_partition}", f"the topic has {topic.partition_count} partitions"
                )
            leader = topic.leaders[topic_partition.partition]
            if leader is None:
                raise KafkaError(
                    ErrorCode.leader_not_available, f"{topic_partition} has no leader at present"
                )
        return leader

    def nearest_replica(
        self, topic_partition: TopicPartition, leader: Leader, reader: ReaderPlace
    ) -> BrokerId:
        """Return the replica of a partition that is nearest to `reader`, by the metadata known.

        Followers that have just failed are left out.
        """
        topic = self._topics.get(topic_partition.topic)
        in_sync = () if topic is None else topic.in_sync.get(topic_partition.partition, ())
        usable = [each for each in in_sync if self.address(each) not in FAILED_REPLICAS]
        places = {
            broker_id: BrokerPlace(host, self._racks.get(broker_id))
            for broker_id, (host, _) in self._brokers.items()
        }
        return reader.nearest(leader.broker_id, usable, places)

    def address(self, broker_id: BrokerId) -> tuple[str, int] | None:
        """Return a broker's address; None if it is unknown."""
        return self._brokers.get(broker_id)

    def forget_leader(self, topic_partition: TopicPartition) -> None:
        """Fetch the leaders of the partition's topic again on next use."""
        self.forget(topic_partition.topic)

    def forget(self, topic: str) -> None:
        """Fetch the metadata of a topic again on next use."""
        self._outdated.add(topic)

    def forget_older(self, age_ms: int) -> None:
        """Fetch the metadata of topics that is older than `age_ms` again on next use."""
        since_ms = monotonic_ms() - age_ms
        self._outdated.update(name for name, topic in self._topics.items() if topic.learned_ms < since_ms)

    def leader_named(
        self,
        topic_partition: TopicPartition,
        named: Leader,
        addresses: Mapping[BrokerId, tuple[str, int]],
        *,
        refused_by: BrokerId,
    ) -> bool:
        """Take in a partition's leader and brokers' addresses from a broker that does not lead it.

        Returns whether the known leader is now another broker than `refused_by`, so that it can be asked at
        once. A new leader that has not learned of its leadership refuses as well.
        """
        topic = self._topics.get(topic_partition.topic)
        known = None if topic is None else topic.leaders.get(topic_partition.partition)
        if topic is None or known is None or topic_partition.topic in self._outdated:
            return False
        if named.leader_epoch > known.leader_epoch and named.broker_id in (self._brokers.keys() | addresses):
            self._brokers.update(addresses)
            known = named
            leaders = {**topic.leaders, topic_partition.partition: named}
            self._topics[topic_partition.topic] = topic._replace(leaders=leaders)
        return known.broker_id != refused_by

    def channel(self, broker_id: BrokerId, *, connect_timeout_s: float | None = None) -> BlockingChannel:
        """Return the connection to a broker; connect if there is none, within `connect_timeout_s` if given.

        Raises:
            KafkaError: NETWORK_EXCEPTION, it cannot be reached; LEADER_NOT_AVAILABLE, its address is unknown.
        """
        channel = self._channels.get(broker_id)
        if channel is None:
            address = self._brokers.get(broker_id)
            if address is None:
                raise KafkaError(
                    ErrorCode.leader_not_available, f"the address of broker {broker_id} is unknown"
                )
            channel = self._channels[broker_id] = connected(self.config, address, connect_timeout_s)
            self._lost.discard(broker_id)
        return channel

    def broker_ids(self) -> list[BrokerId]:
        """Return the brokers of the cluster; fetch them if they are unknown.

        Raises:
            KafkaError: no broker answered.
        """
        if not self._brokers:
            self._ask_any_broker((), create=False)
        return sorted(self._brokers)

    def broker_named(self, broker_id: BrokerId, address: tuple[str, int]) -> None:
        """Take in a broker's address from another broker's answer that named it.

        The metadata may be older: from before the broker returned, or moved.
        """
        self._brokers[broker_id] = address

    def forget_brokers(self) -> None:
        """Fetch the list of brokers again on next use; connections stay open."""
        self._brokers = {}

    def disconnect(self, broker_id: BrokerId) -> None:
        """Close the connection to a broker after a failure, if there is one, and forget its leaderships."""
        self._lost.add(broker_id)
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()
        for name, topic in self._topics.items():
            if any(leader is not None and leader.broker_id == broker_id for leader in topic.leaders.values()):
                self._outdated.add(name)

    def ask_any(self, request: Any) -> Any:
        """Return any broker's answer; a connection that fails is closed.

        Raises:
            KafkaError: no broker can be reached, or this one does not answer.
        """
        return self.ask_any_by_id(lambda _: request)

    def ask_any_by_id(self, request_to: Callable[[BrokerId], Any]) -> Any:
        """Return any broker's answer to a request that depends on its id.

        Raises:
            KafkaError: no broker can be reached, or this one does not answer.
        """
        broker_id, channel = self.any_channel()
        try:
            return channel.request(request_to(broker_id))
        except KafkaError:
            self.disconnect(broker_id)
            raise

    def any_channel(self) -> tuple[BrokerId, BlockingChannel]:
        """Return a connection to any broker, an existing one if possible.

        Raises:
            KafkaError: NETWORK_EXCEPTION, no broker can be reached.
        """
        if not self._brokers:
            self._ask_any_broker((), create=False)
        for broker_id, channel in self._channels.items():
            return broker_id, channel
        failure: KafkaError | None = None
        for broker_id in self._random.sample(sorted(self._brokers), len(self._brokers)):
            try:
                return broker_id, self.channel(broker_id)
            except KafkaError as error:
                failure = error
        self._ask_any_broker((), create=False)  # they may be elsewhere now, or the whole cluster gone
        raise failure or KafkaError(ErrorCode.network_exception, "the cluster has no brokers")

    def retry(
        self,
        action: str,
        attempt: Callable[[], Result],
        *,
        timeout_ms: int | None = None,
        unknown_topic_ms: int | None = None,
    ) -> Result:
        """Return `attempt()`, repeated with growing pauses while it fails retriably and time remains.

        Raises:
            UnknownTopicError: it failed so for `unknown_topic_ms` (else `unknown_topic_timeout_ms`), in
                which the metadata of a new topic would have spread.
            ApiTimeoutError: time is up; its cause is the last failure.
            KafkaError: `attempt` raised an error that is not retriable.
        """
        limit_ms = self.config.api_timeout_ms if timeout_ms is None else timeout_ms
        unknown_ms = self.config.unknown_topic_timeout_ms if unknown_topic_ms is None else unknown_topic_ms
        started = time.monotonic()
        for failures in itertools.count():
            try:
                return attempt()
            except KafkaError as error:
                if not error.retriable:
                    raise
                pause_ms = self.pause_ms(failures, error)
                waited_ms = (time.monotonic() - started) * 1000 + pause_ms
                if isinstance(error, UnknownTopicError) and waited_ms > unknown_ms:
                    raise
                if waited_ms > limit_ms:
                    raise ApiTimeoutError(action, limit_ms, "default.api.timeout.ms", error) from error
                logger.debug("%s: %s; trying again in %d ms", action, error, pause_ms)
                time.sleep(pause_ms / 1000)
        raise AssertionError("counting does not end")

    def pause_ms(self, failures: int, error: KafkaError) -> int:
        """Return the jittered pause after `error`, which followed `failures` others.

        There is none after the first lost connection: only another request can find out its cause. It is
        short at first while a transaction is ending, which takes milliseconds.
        """
        if not failures and error.error_code is ErrorCode.network_exception:
            return 0
        pause_ms = self.config.retry_backoff.pause_ms(failures)
        if error.error_code in _ENDING:
            pause_ms = min(pause_ms, _ENDING_BACKOFF.pause_ms(failures))
        return int(pause_ms * self._random.uniform(0.8, 1.2))

    def close(self) -> None:
        """Close every connection; unanswered requests are abandoned."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _refreshed(self, name: str, *, create: bool) -> Topic:
        """Fetch and remember the metadata of a topic, and in the same request that of all outdated ones."""
        # Topics that may be created are not refreshed on the side: a deleted topic would be created again.
        names = (name,) if create else (name, *sorted(self._outdated - {name}))
        response = self._ask_any_broker(names, create=create)
        learned_ms = monotonic_ms()
        refused: KafkaError | None = None
        for answered in response.topics:
            try:
                found = described(answered, learned_ms)
            except KafkaError as error:  # of another topic it is found out when that matters
                refused = error if answered.name == name else refused
                continue
            self._topics[found.name] = not_behind(found, self._topics.get(found.name))
            self._outdated.discard(found.name)
        if refused is not None:
            raise refused
        if name not in self._topics or name in self._outdated:
            raise UnknownTopicError(f"topic {name}", "the broker's answer does not mention it")
        return self._topics[name]

    def _ask_any_broker(self, names: tuple[str, ...] | None, *, create: bool) -> MetadataResponse:
        """Fetch metadata from connected brokers, else known ones, bootstrap servers, failed brokers.

        Raises:
            ClusterStoppedError: the cluster is this application's own, and stopped.
            KafkaError: no broker answered.
        """
        request = MetadataRequest(
            topics=None
            if names is None
            else tuple(MetadataRequestTopic(topic_id=None, name=name) for name in names),
            allow_auto_topic_creation=create,
            include_topic_authorized_operations=False,
        )
        failure: KafkaError | None = None
        known = sorted(self._brokers, key=lambda broker_id: broker_id not in self._channels)
        bootstrap = self._random.sample(self.config.bootstrap_servers, len(self.config.bootstrap_servers))
        candidates: list[BrokerId | tuple[str, int]] = [
            *(broker_id for broker_id in known if broker_id not in self._lost),
            *bootstrap,
            *(broker_id for broker_id in known if broker_id in self._lost),
        ]
        for asked in candidates:
            try:
                return self._learn(self._ask(asked, request))
            except KafkaError as error:
                if self.config.of_this_application and isinstance(asked, tuple) and _is_refused(error):
                    host, port = asked
                    raise ClusterStoppedError(f"{host}:{port}") from error
                failure = error
        assert failure is not None, "there is at least one bootstrap server"
        raise failure

    def _ask(self, asked: BrokerId | tuple[str, int], request: MetadataRequest) -> MetadataResponse:
        if isinstance(asked, tuple):
            with connected(self.config, asked) as channel:
                return channel.request(request)
        busy = self._channels.get(asked)
        if busy is not None and busy.outstanding:
            # A connection with outstanding answers can't be used; another one is opened.
            return self._ask(self._brokers[asked], request)
        try:
            return self.channel(asked).request(request)
        except KafkaError:
            self.disconnect(asked)
            raise

    def _learn(self, response: MetadataResponse) -> MetadataResponse:
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._racks = {broker.node_id: broker.rack for broker in response.brokers}
        return response


def _is_refused(error: KafkaError) -> bool:
    """Return whether a connection was refused, which proves that no process listens there."""
    return isinstance(error.__cause__, ConnectionRefusedError)
