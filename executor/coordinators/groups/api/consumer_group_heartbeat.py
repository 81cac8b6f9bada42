"""ConsumerGroupHeartbeat, versions 0 and 1: the one request of the consumer protocol's members (KIP-848)."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from sparklog.executor.coordinators.groups.api.join_group import client_host, may_describe
from sparklog.executor.coordinators.groups.machine.consumer.heartbeats import (
    ConsumerGroupHeartbeat,
    heartbeat_error,
)
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.metadata.features import GROUP_VERSION_FEATURE
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import unless_minus_one

_MILLISECOND: Final = timedelta(milliseconds=1)
MAX_NAMED_TOPICS: Final = 10_000
"""One turn of the loop adds all names of a subscription to the group: 65 ms for so many."""


def serves_consumer_groups(image: MetadataImage) -> bool:
    return image.features.get(GROUP_VERSION_FEATURE, 0) > 0


class ConsumerGroupHeartbeatHandler:
    def __init__(self, coordinators: CoordinatorRuntime, image: Callable[[], MetadataImage]) -> None:
        self._coordinators = coordinators
        self._image = image

    def handle(self, request: Request) -> Deferred | Response:
        if not serves_consumer_groups(self._image()):
            return heartbeat_error(ErrorCode.unsupported_version)
        body = request.body
        names = body.subscribed_topic_names
        if names is not None and len(names) > MAX_NAMED_TOPICS:
            return heartbeat_error(
                ErrorCode.invalid_request,
                f"SubscribedTopicNames has {len(names)} topics, and {MAX_NAMED_TOPICS} is the most that a "
                "member may name; subscribe by a regular expression.",
            )
        heartbeat = ConsumerGroupHeartbeat(
            group_id=body.group_id,
            member_id=body.member_id,
            member_epoch=body.member_epoch,
            client_id=request.client_id or "",
            client_host=client_host(request),
            api_version=request.api_version,
            new_member_id=str(uuid4()),
            instance_id=body.instance_id,
            rack_id=body.rack_id,
            rebalance_timeout_ms=unless_minus_one(body.rebalance_timeout // _MILLISECOND),
            subscribed_topic_names=None if names is None else frozenset(names),
            # Version 0 has no regular expressions.
            subscribed_topic_regex=getattr(body, "subscribed_topic_regex", None),
            server_assignor=body.server_assignor,
            owned_partitions=None if body.topic_partitions is None else _by_topic(body.topic_partitions),
            may_describe=may_describe(request),
        )
        return self._coordinators.submit(
            heartbeat.group_id,
            lambda machine, token, now: machine.consumer.consumer_group_heartbeat(heartbeat, token, now),
            heartbeat_error,
        )


def _by_topic(topic_partitions: Iterable[Any]) -> dict[UUID, set[int]]:
    owned: dict[UUID, set[int]] = {}
    for one in topic_partitions:
        owned.setdefault(one.topic_id or UUID(int=0), set()).update(one.partitions)
    return owned
