"""Who may push what how often (KIP-714)."""

from uuid import UUID

import pytest

from sparklog.node.telemetry.machine.client_instances import ClientInstances, Subscription
from sparklog.protocol.errors import ErrorCode, KafkaError

ALL = Subscription(("*",), 1_000)
LZ4 = 3


def instances(max_instances: int = 10) -> ClientInstances:
    """Everybody is asked for everything each second, in 100 bytes."""
    ids = iter(range(1000, 2000))
    return ClientInstances(
        lambda *_: ALL, lambda: UUID(int=next(ids)), max_bytes=100, max_instances=max_instances
    )


def push(
    known: ClientInstances,
    id_: UUID | None,
    subscription_id: int,
    now_ms: int,
    *,
    size_bytes: int = 10,
    compression_type: int = LZ4,
    is_terminating: bool = False,
) -> ErrorCode:
    """Return what a push is answered with."""
    try:
        known.pushed(
            id_, {}, subscription_id, compression_type, size_bytes, now_ms, is_terminating=is_terminating
        )
    except KafkaError as error:
        return error.error_code
    return ErrorCode.none


def test_client_without_an_id_gets_one_and_pushes_under_it_once_an_interval() -> None:
    """A client that pushes faster than it was told must not be able to load the broker with it."""
    known = instances()
    subscribed = known.asked(None, {}, 0)
    id_, subscription = subscribed.client_instance_id, subscribed.subscription_id
    assert (id_, subscribed.subscription) == (UUID(int=1000), ALL)
    # The first push may come at once: clients spread theirs over the interval.
    assert push(known, id_, subscription, 10) is ErrorCode.none
    assert push(known, id_, subscription, 500) is ErrorCode.throttling_quota_exceeded
    # One that the network has brought a little early is taken.
    assert push(known, id_, subscription, 950) is ErrorCode.none
    assert push(known, id_, subscription, 1_990) is ErrorCode.none


def test_client_that_asks_within_its_interval_is_throttled_unless_its_subscription_has_changed() -> None:
    """Otherwise a lost subscription would cost a client an interval's figures."""
    known = instances()
    subscribed = known.asked(None, {}, 0)
    id_ = subscribed.client_instance_id
    with pytest.raises(KafkaError) as refused:
        known.asked(id_, {}, 100)
    assert refused.value.error_code is ErrorCode.throttling_quota_exceeded
    assert push(known, id_, subscribed.subscription_id + 1, 100) is ErrorCode.unknown_subscription_id
    assert known.asked(id_, {}, 101) == subscribed


def test_subscription_is_known_again_by_whoever_has_forgotten_the_client() -> None:
    """Brokers restart, and clients go on pushing to the next one: nothing but a sample may be lost."""
    subscribed = instances().asked(UUID(int=7), {}, 0)
    assert push(instances(), UUID(int=7), subscribed.subscription_id, 0) is ErrorCode.none
    assert push(instances(), UUID(int=8), subscribed.subscription_id, 0) is ErrorCode.unknown_subscription_id


def test_push_of_another_subscription_is_told_so_when_what_is_asked_for_changes() -> None:
    """A broker whose registration is committed is asked for more than a client."""
    wanted = {"now": ALL}
    known = ClientInstances(lambda *_: wanted["now"], lambda: UUID(int=9), max_bytes=100)
    before = known.asked(UUID(int=7), {}, 0)
    wanted["now"] = Subscription(("org.apache.kafka.producer.",), 5_000)
    assert push(known, UUID(int=7), before.subscription_id, 1_000) is ErrorCode.unknown_subscription_id
    assert known.asked(UUID(int=7), {}, 1_001).subscription == wanted["now"]


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({"size_bytes": 101}, ErrorCode.telemetry_too_large),
        ({"compression_type": 5}, ErrorCode.unsupported_compression_type),
        ({"compression_type": -1}, ErrorCode.unsupported_compression_type),
    ],
)
def test_push_that_cannot_be_taken_is_refused_by_name(changes: dict[str, int], error_code: ErrorCode) -> None:
    """Clients act on these: they push less, or ask which compression is taken."""
    known = instances()
    subscribed = known.asked(None, {}, 0)
    refusal = push(known, subscribed.client_instance_id, subscribed.subscription_id, 0, **changes)  # type: ignore[arg-type]
    assert refusal is error_code


@pytest.mark.parametrize("id_", [None, UUID(int=0), UUID(int=1)])
def test_push_without_a_client_instance_id_is_invalid(id_: UUID | None) -> None:
    """Everybody who forgot to ask would be one client."""
    assert push(instances(), id_, 0, 0) is ErrorCode.invalid_request


def test_last_push_may_come_early_and_none_comes_after_it() -> None:
    """A producer that is closed tells its last figures without waiting for an interval to end."""
    known = instances()
    subscribed = known.asked(None, {}, 0)
    id_, subscription = subscribed.client_instance_id, subscribed.subscription_id
    assert push(known, id_, subscription, 1) is ErrorCode.none
    assert push(known, id_, subscription, 2, is_terminating=True) is ErrorCode.none
    assert push(known, id_, subscription, 5_000) is ErrorCode.invalid_request


def test_instances_are_bounded_and_the_longest_silent_goes() -> None:
    """Whoever makes up ids must not fill a broker's memory."""
    known = instances(max_instances=3)
    for number in range(10):
        known.asked(UUID(int=100 + number), {}, number)
    assert len(known) == 3
    known.asked(UUID(int=108), {}, 2_000)
    known.asked(UUID(int=200), {}, 2_001)
    known.expire(2_001 + 59_998)
    assert len(known) == 2
    known.expire(2_001 + 60_001)
    assert len(known) == 0
