"""Client instances that push telemetry (KIP-714): their subscriptions and push intervals, at bounded memory.

Rules kept, those of Kafka's ClientMetricsManager: the id of an instance's subscription is computed from the
subscription and the instance id, so a node that has forgotten an instance computes the same id. An instance
that pushes under another id gets UNKNOWN_SUBSCRIPTION_ID, and may ask again at once. An instance may push or
ask once an interval; its first push after an answer may come sooner, since clients spread theirs. A
`terminating` push is an instance's last, and may come at any time. Instances that were silent for three
intervals, or the longest silent of too many, are forgotten.

Pure.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID
from zlib import crc32

from sparklog.protocol.errors import ErrorCode, KafkaError

_MAX_INSTANCES: Final = 16_384
_EXPIRY_MS: Final = 60_000
_EXPIRY_INTERVALS: Final = 3
_RESERVED: Final = 2
"""Smaller ids are reserved in Kafka (Uuid.RESERVED)."""
_COMPRESSION_TYPES: Final = 5


Client: TypeAlias = Mapping[str, str]
"""The client's attributes (`sparklog.node.config.client_metrics.MATCHED`)."""


class Subscription(NamedTuple):
    """The metrics that a client pushes, and how often."""

    metrics: tuple[str, ...]
    """Prefixes of names; "*" is all of them; empty is none."""
    push_interval_ms: int


class Subscribed(NamedTuple):
    """The answer to an instance."""

    client_instance_id: UUID
    subscription_id: int
    subscription: Subscription


@dataclass(slots=True)
class _Instance:
    subscription: Subscription
    subscription_id: int
    asked_ms: int | None = None
    pushed_ms: int | None = None
    heard_ms: int = 0
    is_terminating: bool = False
    may_ask_again: bool = False
    """Whether its subscription has changed since its last answer."""


class ClientInstances:
    def __init__(
        self,
        subscription_of: Callable[[UUID, Client], Subscription],
        new_id: Callable[[], UUID],
        *,
        max_bytes: int,
        max_instances: int = _MAX_INSTANCES,
    ) -> None:
        """Accept at most `max_bytes` a push, compressed."""
        self.max_bytes = max_bytes
        self._subscription_of = subscription_of
        self._new_id = new_id
        self._max_instances = max_instances
        self._instances: OrderedDict[UUID, _Instance] = OrderedDict()
        """The longest silent first."""

    def __len__(self) -> int:
        return len(self._instances)

    def asked(self, client_instance_id: UUID | None, client: Client, now_ms: int) -> Subscribed:
        """Return the subscription of an instance, and an id if it has none yet.

        Raises:
            KafkaError: throttling_quota_exceeded: the instance asks more often than it may push.
        """
        id_ = client_instance_id or self._new_id()
        instance = self._heard(id_, client, now_ms)
        interval_ms = instance.subscription.push_interval_ms
        last_ms = max((at for at in (instance.asked_ms, instance.pushed_ms) if at is not None), default=None)
        if last_ms is not None and not instance.may_ask_again and _is_early(now_ms - last_ms, interval_ms):
            raise KafkaError(
                ErrorCode.throttling_quota_exceeded, f"client instance {id_} asks within its push interval"
            )
        instance.asked_ms = now_ms
        instance.may_ask_again = False
        return Subscribed(id_, instance.subscription_id, instance.subscription)

    def pushed(
        self,
        client_instance_id: UUID | None,
        client: Client,
        subscription_id: int,
        compression_type: int,
        size_bytes: int,
        now_ms: int,
        *,
        is_terminating: bool,
    ) -> None:
        """Check and note a push; its metrics may be used when this returns.

        Raises:
            KafkaError: invalid_request, throttling_quota_exceeded, unknown_subscription_id,
                unsupported_compression_type, telemetry_too_large.
        """
        if client_instance_id is None or client_instance_id.int < _RESERVED:
            raise KafkaError(ErrorCode.invalid_request, f"{client_instance_id} is not a client instance id")
        instance = self._heard(client_instance_id, client, now_ms)
        if instance.is_terminating:
            raise KafkaError(
                ErrorCode.invalid_request, f"client instance {client_instance_id} pushes after its last push"
            )
        instance.is_terminating = is_terminating
        asked_ms, pushed_ms = instance.asked_ms, instance.pushed_ms
        is_first = pushed_ms is None or (asked_ms is not None and asked_ms > pushed_ms)
        if not is_first and not is_terminating:
            assert pushed_ms is not None
            if _is_early(now_ms - pushed_ms, instance.subscription.push_interval_ms):
                raise KafkaError(
                    ErrorCode.throttling_quota_exceeded,
                    f"client instance {client_instance_id} pushes within its push interval",
                )
        instance.pushed_ms = now_ms
        if subscription_id != instance.subscription_id:
            instance.may_ask_again = True
            raise KafkaError(
                ErrorCode.unknown_subscription_id,
                f"client instance {client_instance_id} pushes for subscription {subscription_id}, "
                f"it has {instance.subscription_id}",
            )
        if not 0 <= compression_type < _COMPRESSION_TYPES:
            instance.may_ask_again = True
            raise KafkaError(
                ErrorCode.unsupported_compression_type, f"there is no compression type {compression_type}"
            )
        if size_bytes > self.max_bytes:
            raise KafkaError(
                ErrorCode.telemetry_too_large, f"{size_bytes} bytes of telemetry, of at most {self.max_bytes}"
            )

    def expire(self, now_ms: int) -> None:
        """Forget instances that were silent for three intervals, at least a minute."""
        while self._instances:
            id_, instance = next(iter(self._instances.items()))
            silent_ms = now_ms - instance.heard_ms
            if silent_ms <= max(_EXPIRY_MS, _EXPIRY_INTERVALS * instance.subscription.push_interval_ms):
                return
            del self._instances[id_]

    def _heard(self, id_: UUID, client: Client, now_ms: int) -> _Instance:
        subscription = self._subscription_of(id_, client)
        instance = self._instances.get(id_)
        if instance is None:
            self.expire(now_ms)
            while len(self._instances) >= self._max_instances:
                self._instances.popitem(last=False)
            instance = _Instance(subscription, _subscription_id(id_, subscription))
        elif instance.subscription != subscription:
            instance = _Instance(subscription, _subscription_id(id_, subscription))
        instance.heard_ms = now_ms
        self._instances[id_] = instance
        self._instances.move_to_end(id_)
        return instance


def _is_early(elapsed_ms: int, interval_ms: int) -> bool:
    """Whether less than the interval has passed, less a tenth for delays of the network."""
    return elapsed_ms < interval_ms - interval_ms // 10


def _subscription_id(client_instance_id: UUID, subscription: Subscription) -> int:
    content = f"{subscription.metrics} {subscription.push_interval_ms}".encode()
    id_ = crc32(client_instance_id.bytes, crc32(content))
    return id_ - (1 << 32) if id_ >= 1 << 31 else id_
