"""Which of eight levels of quotas holds for a client, and with whom its rate is shared."""

import pytest

from sparklog.node.config.client_quotas import CONNECTION_CREATION_RATE, PRODUCER_BYTE_RATE
from sparklog.node.metadata.image import ClientQuotaEntity
from sparklog.node.quotas.machine.applicable_quotas import AddressLimits, ClientLimits, Limit

LEVELS: tuple[tuple[ClientQuotaEntity, tuple[str | None, str | None]], ...] = (
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", None)),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", None)),
    ((("client-id", "c"),), (None, "c")),
    ((("client-id", None),), (None, "c")),
)
"""As Kafka's documentation lists them, the first first."""


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_first_level_that_is_set_holds(level: int) -> None:
    """An operator who sets a quota for one client must not find a default in its place, nor the other way."""
    quotas = {entity: {PRODUCER_BYTE_RATE: number + 1.0} for number, (entity, _) in enumerate(LEVELS)}
    for entity, _ in LEVELS[:level]:
        del quotas[entity]
    assert ClientLimits(PRODUCER_BYTE_RATE, quotas).limit("u", "c") == Limit(level + 1.0, LEVELS[level][1])


def test_quota_of_another_kind_does_not_stand_in_the_way() -> None:
    """A client with a request percentage of its own still has its user's byte rate."""
    quotas = {LEVELS[0][0]: {"request_percentage": 5.0}, LEVELS[2][0]: {PRODUCER_BYTE_RATE: 7.0}}
    assert ClientLimits(PRODUCER_BYTE_RATE, quotas).limit("u", "c") == Limit(7.0, ("u", None))


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_client_without_an_id_has_the_quotas_of_users_alone(level: int) -> None:
    """As in Kafka: defaults of client ids are for clients that have one."""
    quotas = {LEVELS[level][0]: {PRODUCER_BYTE_RATE: 1.0}}
    of_users = Limit(1.0, ("u", None)) if level in (2, 5) else None
    assert ClientLimits(PRODUCER_BYTE_RATE, quotas).limit("u", "") == of_users


def test_nobody_is_limited_by_others_quotas() -> None:
    """Names are compared whole; what is set for addresses is no client's."""
    quotas: dict[ClientQuotaEntity, dict[str, float]] = {
        (("user", "U"),): {PRODUCER_BYTE_RATE: 1.0},
        (("client-id", "c2"),): {PRODUCER_BYTE_RATE: 1.0},
        (("ip", None),): {PRODUCER_BYTE_RATE: 1.0},
    }
    assert ClientLimits(PRODUCER_BYTE_RATE, quotas).limit("u", "c") is None


def test_address_has_its_own_bound_or_the_default() -> None:
    """A default alone holds for everybody."""
    quotas: dict[ClientQuotaEntity, dict[str, float]] = {
        (("ip", "10.0.0.1"),): {CONNECTION_CREATION_RATE: 5.0},
        (("user", "10.0.0.2"),): {CONNECTION_CREATION_RATE: 6.0},
    }
    limits = AddressLimits(CONNECTION_CREATION_RATE, quotas)
    assert (limits.bound("10.0.0.1"), limits.bound("10.0.0.2")) == (5.0, None)
    quotas[(("ip", None),)] = {CONNECTION_CREATION_RATE: 7.0}
    limits = AddressLimits(CONNECTION_CREATION_RATE, quotas)
    assert (limits.bound("10.0.0.1"), limits.bound("10.0.0.2")) == (5.0, 7.0)
