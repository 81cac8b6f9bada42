"""Fetch: serve records to consumers and followers, at once or when there are some.

Records leave as regions of the log's files, without passing through Python. A request is answered when it
has found enough (`fetch_progress.py`), or after `max_wait_ms`; until then it waits as its context's
`waiting`. Another thread reads from the disk: index pages and batch headers before the records are looked
for again, and the records before the answer leaves. Records that only the object store has are waited for
while there is nothing else to answer, for remote.fetch.max.wait.ms or as long as the client waits. Only
partitions that have changed since the last answer are read and reported. Versions 4 to 18; from 13 on topics
are named by id.

A consumer gets at most the bytes that its quota allows without a wait, and an empty answer while it is
throttled (KIP-219); a session then remembers no offsets as sent.
"""

import logging
from asyncio import Future
from collections.abc import Callable, Iterable, Mapping
from random import SystemRandom
from typing import Any, Final

from sparklog.executor.api.fetch.cold_reads import look_up, warm
from sparklog.executor.api.fetch.fetch_progress import FetchedPartition, FetchParams, FetchProgress
from sparklog.executor.api.fetch.fetch_responses import fetch_response, follower_response
from sparklog.executor.api.fetch.fetch_sessions import (
    CachedPartition,
    FetchContext,
    FetchSessions,
    PartitionKey,
)
from sparklog.executor.api.fetch.partition_reads import (
    FetchServices,
    counts_for_quota,
    read_failed,
    read_partition,
)
from sparklog.executor.api.services import PartitionServices
from sparklog.executor.partitions.traffic import reader_distance
from sparklog.executor.remote_reads.loads import Load
from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.metrics import server
from sparklog.node.quotas.machine.client_rates import RateQuota
from sparklog.node.serving.requests import Deferred, Handler, Request, Response, Throttled
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.fetch_metadata import LARGEST, NO_SESSION_ID
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError, kafka_error

logger = logging.getLogger(__name__)

MayRead = Callable[[PartitionKey], None]
"""Raises a KafkaError for what may not be read."""


def readable(access: Access, context: FetchContext) -> MayRead | None:
    """Return the check of a request's partitions; None if all may be read.

    Consumers may read the partitions of topics they may READ, followers all or none. Each partition is
    authorized when it is read, since a session has no end. When ACLs have changed, all of a session's
    partitions are checked, so that its reader gets TOPIC_AUTHORIZATION_FAILED.
    """
    if context.acls is not access.image.acls:
        context.acls = access.image.acls
        context.changed.update(context.partitions)
    if context.is_follower:
        return None if access.allows_on_cluster(AclOperation.CLUSTER_ACTION) else _may_not
    topics = access.image.topics.by_id

    def may_read(key: PartitionKey) -> None:
        name = key.topic
        if not isinstance(name, str):
            topic = topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with id {name}")
            name = topic.name
        if not access.allows(AclOperation.READ, AclResourceType.TOPIC, name):
            raise _denied(name)

    return may_read


def _may_not(key: PartitionKey) -> None:
    raise _denied(str(key.topic))


def _denied(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.topic_authorization_failed, f"topic {topic} may not be read")


_PARTITIONS_AT_ONCE: Final = 100
_SECOND_MS: Final = 1_000
_NEWS_WAIT_MS: Final = 500
"""The longest time for which a follower waits for an offset that has moved without records, its leader's high
watermark or log start offset, and for records that a quota holds back: Kafka's default of
replica.fetch.wait.max.ms. An idle follower allows for more (`leader_fetches.py`)."""


class DelayedFetch:
    """One Fetch request, answered or waiting.

    Order for the caller: `begin`, once.
    """

    __slots__ = (
        "_bucket",
        "_context",
        "_deadline_ms",
        "_deferred",
        "_is_answered",
        "_loads",
        "_may_read",
        "_params",
        "_quota",
        "_remote_deadline_ms",
        "_services",
        "waits_long",
    )

    def __init__(
        self,
        services: FetchServices,
        params: FetchParams,
        context: FetchContext,
        deadline_ms: int,
        quota: RateQuota | None,
        may_read: MayRead | None,
    ) -> None:
        self._services = services
        self._params = params
        self._context = context
        self.waits_long = params.broker_id is not None and params.max_wait_ms > _NEWS_WAIT_MS
        if self.waits_long and params.max_wait_ms > _SECOND_MS:
            # With the periodic work of this broker, and of followers that share its host's clock.
            deadline_ms -= deadline_ms % _SECOND_MS
        self._deadline_ms = deadline_ms
        self._quota = quota
        """The quota of the records; None without a limit."""
        self._may_read = may_read
        """Raises the error of a partition that may not be read; None if all may be read."""
        self._deferred: Deferred | None = None
        """The answer to complete; None while the request may still be answered at once."""
        self._bucket: int | None = None
        self._is_answered = False
        self._loads: set[Load] = set()
        """The look-ups in the object store that wake this request when they end."""
        self._remote_deadline_ms = 0
        """Until when the object store is waited for, also where the client would wait less."""

    def begin(self, now_ms: int) -> Any:
        """Answer now, or return a deferred answer."""
        if self._services.remote is not None:
            self._remote_deadline_ms = now_ms + self._services.remote.max_wait_ms
        if len(self._context.changed) > _PARTITIONS_AT_ONCE:
            return self._begin_with_many(now_ms)
        return self._settle(self._read(FetchProgress(self._params, now_ms, cached_only=True)))

    async def _begin_with_many(self, now_ms: int) -> Response:
        progress = FetchProgress(self._params, now_ms, cached_only=True)
        try:
            for asked in list(self._context.changed.values()):
                await turn()
                self._read_one(asked, progress)
        except GeneratorExit:
            self._leave()
            raise
        answer = self._settle(progress)
        if self._context.waiting is self:
            # No change since its partition was read has woken this request.
            self.wake()
        return answer

    # --- waiting --------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look again after the callbacks of this turn of the loop."""
        self._services.delayed.wake(self)

    def recheck(self) -> None:
        """Answer if enough was found."""
        if not self._is_answered:
            self._settle(self._read(FetchProgress(self._params, None, cached_only=True)))

    def hurry(self) -> None:
        self.waits_long = False
        self._deadline_ms = min(self._deadline_ms, self._services.delayed.now_ms() + _NEWS_WAIT_MS)
        if self._bucket is not None:
            self._services.delayed.discard(self, self._bucket)
            self._bucket = self._services.delayed.add(self, self._deadline_ms)

    def expire(self) -> None:
        self._deadline_ms = self._remote_deadline_ms = 0
        self.recheck()

    def _wait(self, deadline_ms: int) -> Deferred:
        """Wait for a change of what its context reads, until the deadline."""
        if self._context.waiting is not self:
            self._context.waiting = self
            self._bucket = self._services.delayed.add(self, deadline_ms)
        return self._defer()

    def _defer(self) -> Deferred:
        if self._deferred is None:
            self._deferred = Deferred(self._leave)
        return self._deferred

    def _stop_waiting(self) -> None:
        if self._bucket is not None:
            self._services.delayed.discard(self, self._bucket)
            self._bucket = None
        if self._context.waiting is self:
            self._context.waiting = None

    def _leave(self) -> None:
        """Stop waiting: the request is answered, or its client has disconnected."""
        self._is_answered = True
        self._stop_waiting()
        for load in self._loads:
            load.leave(self.wake)
        self._loads.clear()
        if self._context.session_id == NO_SESSION_ID:
            # It and its partitions refer to each other, thousands of them perhaps, until it is closed.
            self._context.close()

    # --- reading --------------------------------------------------------------------------------

    def _read(self, progress: FetchProgress) -> FetchProgress:
        """Read the changed partitions of the request's context."""
        for asked in list(self._context.changed.values()):
            self._read_one(asked, progress)
        return progress

    def _read_one(self, asked: CachedPartition, progress: FetchProgress) -> None:
        fetched = FetchedPartition(asked)
        try:
            if self._may_read is not None:
                self._may_read(asked.key)
            fetched.replica = replica = asked.replica or self._services.table.find(*asked.key)
            if self._context.session_id != NO_SESSION_ID and asked.replica is None:
                asked.watch(replica)
            read_partition(replica, fetched, progress, self._services)
        except (KafkaError, OSError) as error:
            fetched.error_code = kafka_error(error).error_code
            if self._params.broker_id is None:
                fetched.hide_high_watermark()
        progress.add(fetched)

    def _settle(self, progress: FetchProgress) -> Any:
        """Answer, wait for more, or do the blocking look-ups in another thread."""
        if progress.cold:
            return self._look_up(progress)
        if self.waits_long and self._context.changed:
            # It has something to tell, or must look again: records are held back, or loaded.
            self.hurry()
        deadline_ms = self._deadline_ms
        if progress.loads:
            deadline_ms = max(deadline_ms, self._remote_deadline_ms)
        if (
            progress.is_enough
            or not self._context.partitions
            or self._services.delayed.now_ms() >= deadline_ms
        ):
            return self._answer(progress)
        for load in progress.loads:
            load.wait(self.wake)
            self._loads.add(load)
        for fetched in progress.found:
            if fetched.replica is not None:
                fetched.asked.watch(fetched.replica)
        return self._wait(deadline_ms)

    def _look_up(self, progress: FetchProgress) -> Deferred:
        """Bring index pages and batch headers into memory, then read again.

        Meanwhile no change matters and no deadline: only this request needs it.
        """
        self._stop_waiting()
        cold = progress.cold

        def looked_up(looking: Future[list[Exception | None]]) -> None:
            must_answer = False
            for fetched, error in zip(cold, looking.result(), strict=True):
                if isinstance(error, (KafkaError, OSError)):
                    assert fetched.replica is not None
                    read_failed(fetched.replica, fetched.asked.fetch_offset, error)
                elif error is not None:
                    logger.error("%s: a look-up failed", fetched.replica, exc_info=error)
                    fetched.error_code = ErrorCode.unknown_server_error
                    must_answer = True
            if self._is_answered:
                return
            if must_answer:
                self._answer(progress)
            else:
                # Pages evicted again are read here, blocking, or else this might never end.
                self._settle(self._read(FetchProgress(self._params, None, cached_only=False)))

        look_ups = [fetched.cold for fetched in cold if fetched.cold is not None]
        looking = self._services.delayed.run_in_executor(self._services.executor, look_up, look_ups)
        looking.add_done_callback(looked_up)
        return self._defer()

    # --- answering ------------------------------------------------------------------------------

    def _answer(self, progress: FetchProgress) -> Any:
        """Complete the deferred request, or return the answer; read from the disk first where needed."""
        deferred = self._deferred
        context, found, throttle_ms = self._context, progress.found, 0
        if self._quota is None:
            progress.sent(context)
        else:
            may_have, throttle_ms = self._quota.spend(progress.found_bytes, self._services.delayed.now_ms())
            if may_have:
                progress.sent(context)
            else:
                found = []
                self._services.sessions.not_begun(context)
        by_follower = self._params.broker_id is not None
        read_bytes = 0
        for fetched in found:
            if fetched.replica is not None:
                region = fetched.region
                traffic, size_bytes = fetched.replica.traffic, 0 if region is None else region.length
                traffic.fetched(size_bytes, fetched.error_code, by_follower=by_follower)
                if not by_follower:
                    fetched.replica.bytes_out += size_bytes
                read_bytes += size_bytes
                if fetched.is_remote:
                    traffic.fetched_remotely(size_bytes, fetched.error_code)
        if by_follower and self._services.leader_quota.is_bounded:
            self._count_for_quota(found)
        params = self._params
        if read_bytes and not by_follower:
            distance = reader_distance(params.peer, params.rack_id, self._services.rack)
            traffic.broker.consumed(read_bytes, distance)
        response: Any = follower_response(found, context.session_id) if params.is_fixed else None
        if response is None:
            response = fetch_response(
                params.version,
                found,
                self._services.table,
                params.listener_name,
                session_id=context.session_id,
            )
        self._leave()
        if throttle_ms:
            response = Throttled(response, throttle_ms)
        cold = {}
        for fetched in found:
            if fetched.is_behind and fetched.region is not None and not fetched.region.is_cached():
                cold[fetched.region] = fetched.replica
        if cold:
            later = deferred or Deferred()

            def answer_warmed(warmed: Future[list[OSError | None]]) -> None:
                for replica, error in zip(cold.values(), warmed.result(), strict=True):
                    if error is not None and replica is not None:
                        # Sending it ends the connection; the next fetch gets the error.
                        replica.fail_if_storage(error)
                later.complete(response)

            warming = self._services.delayed.run_in_executor(self._services.executor, warm, tuple(cold))
            warming.add_done_callback(answer_warmed)
            return later
        if deferred is not None:
            deferred.complete(response)
        return response

    def _count_for_quota(self, found: Iterable[FetchedPartition]) -> None:
        services = self._services
        now_ms = services.delayed.now_ms()
        for fetched in found:
            if fetched.size_bytes and fetched.replica and counts_for_quota(fetched.replica, services):
                services.leader_quota.record(fetched.size_bytes, now_ms)


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    replicas, config = services.replicas, services.config
    sessions = FetchSessions(
        lambda: SystemRandom().randint(1, LARGEST), slots=config.max_incremental_fetch_session_cache_slots
    )
    replicas.metrics.gauge(server.FETCH_SESSIONS, lambda: len(sessions))
    reads = FetchServices(
        replicas.table,
        replicas.delayed,
        replicas.executor,
        sessions,
        replicas.replication_quotas.leader,
        replicas.remote_reader,
        config.selects_replicas_by_rack,
        config.broker_rack,
    )
    handler = FetchHandler(
        reads, max_response_bytes=config.fetch_max_bytes, consumer_quota=services.quotas.consumer
    )
    return {ApiKey.FETCH: handler.handle}


class FetchHandler:
    def __init__(
        self,
        services: FetchServices,
        *,
        max_response_bytes: int,
        consumer_quota: Callable[[Request], RateQuota | None] = lambda request: None,
    ) -> None:
        """Answer by `services`; `consumer_quota` returns the quota of a consumer's records."""
        self._services = services
        self._consumer_quota = consumer_quota
        self._max_response_bytes = max_response_bytes

    def handle(self, request: Request) -> Any:
        """Answer now, or return a deferred answer."""
        services = self._services
        now_ms = services.delayed.now_ms()
        body, version = request.body, request.api_version
        params = FetchParams(
            body, version, request.listener_name, self._max_response_bytes, request.connection.peer
        )
        try:
            context = services.sessions.begin(
                body, version, request.connection, is_follower=params.broker_id is not None, now_ms=now_ms
            )
        except KafkaError as error:
            return fetch_response(
                version, [], services.table, request.listener_name, error_code=error.error_code
            )
        quota = None if context.is_follower else self._consumer_quota(request)
        if quota is not None:
            params.bound(int(quota.most_at_once))
        may_read = None if request.access is None else readable(request.access, context)
        deadline_ms = now_ms + params.max_wait_ms
        return DelayedFetch(services, params, context, deadline_ms, quota, may_read).begin(now_ms)
