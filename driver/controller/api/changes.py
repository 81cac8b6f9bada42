"""Requests that change the cluster: decided by the machine, answered when the decision is committed."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kio.schema.create_topics.v7.request import CreateTopicsRequest

from sparklog.driver.controller.commit_queue import CommitQueue
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.machine.mutation_quota import UNLIMITED, MutationQuota
from sparklog.driver.controller.machine.part_sizes import by_partitions
from sparklog.driver.controller.machine.parts import joined, parts_of
from sparklog.driver.controller.machine.requests.create_topics import asks_too_much, too_many_partitions
from sparklog.node.apis.parts import (
    MAX_PARTITIONS_PER_REQUEST,
    PARTITIONS_PER_PART,
    TOPICS_PER_PART,
    Parts,
)
from sparklog.node.apis.table import ROWS
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.config.client_quotas import CONTROLLER_MUTATION_RATE
from sparklog.node.metadata.image import ClientQuotaEntity
from sparklog.node.metadata.schemas import PartitionRecord
from sparklog.node.quotas.machine.client_rates import token_quotas
from sparklog.node.responses.auto_topic_creation import AutoCreatedTopics
from sparklog.node.serving.requests import Deferred, Request, Response, Throttled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import upgrade, upgrade_in_steps


class ChangeHandlers:
    def __init__(self, config: BrokerConfig, controller: Controller, commit_queue: CommitQueue) -> None:
        self._config = config
        self._controller = controller
        self._commit_queue = commit_queue
        self._auto_created = AutoCreatedTopics(
            config, max_topics=TOPICS_PER_PART, max_partitions=PARTITIONS_PER_PART
        )
        self._mutations = token_quotas(CONTROLLER_MUTATION_RATE, config.controller_quota_windows)
        self._known_quotas: Mapping[ClientQuotaEntity, Mapping[str, float]] = {}

    async def handle(self, request: Request) -> Deferred:
        """Decide a request, which may concern thousands of partitions, part by part."""
        body = self._controller.in_full(await upgrade_in_steps(request.body))
        deferred = Deferred()
        quota = self._mutation_quota(request)
        new_partitions = 0
        row = ROWS[request.api_key]
        division = by_partitions(row.parts, self._controller.image, self._config)
        parts = await parts_of(body, division)
        replies: dict[int, Any] = {}

        def answer(number: int, reply: Any) -> None:
            replies[number] = reply
            if len(replies) == len(parts):
                in_order = [replies[number] for number in range(len(parts))]
                throttle_ms = quota.throttle_ms(monotonic_ms())
                if division is not None and len(parts) > 1:
                    deferred.complete(_whole(division, in_order, throttle_ms))
                else:
                    deferred.complete(_throttled(in_order[0], throttle_ms))

        too_many = isinstance(body, CreateTopicsRequest) and asks_too_much(self._config, body)
        for number, part in enumerate(parts):
            await turn()
            if too_many:
                answer(number, row.refused(part, too_many_partitions()))
                continue
            decision = self._controller.handle(part, monotonic_ms(), quota)
            new_partitions += sum(type(record) is PartitionRecord for record in decision.records)
            too_many = new_partitions >= MAX_PARTITIONS_PER_REQUEST
            self._commit_queue.submit(decision, partial(answer, number))
        return deferred

    def _mutation_quota(self, request: Request) -> MutationQuota:
        strict_since = ROWS[request.api_key].strict_mutations_since
        if strict_since is None:
            return UNLIMITED
        return self._quota_of(request, strict=request.api_version >= strict_since)

    def _quota_of(self, request: Request, *, strict: bool) -> MutationQuota:
        quotas = self._controller.image.client_quotas
        if quotas is not self._known_quotas:
            self._known_quotas = quotas
            self._mutations.update(quotas)
        if not self._mutations.limit_anybody:
            return UNLIMITED
        now_ms = monotonic_ms()
        of_client = self._mutations.of(request.principal.name, request.client_id or "", now_ms)
        return MutationQuota(of_client, strict=strict, now_ms=now_ms)

    def handle_over_decisions(self, request: Request) -> Deferred:
        """Decide a client's request that may take more than one decision."""
        deferred, body = Deferred(), upgrade(request.body)
        self._commit_queue.submit_parts(
            lambda: self._controller.handle(body, monotonic_ms()), deferred.complete
        )
        return deferred

    def create_topics(self, names: Iterable[str], asker: Request | None) -> None:
        """Create those topics that are not being created yet, within the asker's quota."""
        request = self._auto_created.request_for(names)
        if request is not None:
            quota = UNLIMITED if asker is None else self._quota_of(asker, strict=True)
            decision = self._controller.handle(request, monotonic_ms(), quota)
            self._commit_queue.submit(decision, lambda _: self._auto_created.answered(request))


async def _whole(division: Parts, replies: Sequence[Any], throttle_ms: int) -> Response:
    return _throttled((await joined(division, replies)), throttle_ms)


def _throttled(reply: Any, throttle_ms: int) -> Response:
    return Throttled(reply, throttle_ms) if throttle_ms else reply
