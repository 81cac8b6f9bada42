"""Client quotas: set and removed for an entity as a whole, or refused with Kafka's errors."""

import math
from typing import Any

import pytest
from kio.schema.alter_client_quotas.v1 import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntityData, EntryData, OpData

from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.metadata.schemas import ClientQuotaRecord, QuotaEntityData
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation

Entity = tuple[tuple[str, str | None], ...]
USER: Entity = (("user", "ANONYMOUS"),)
CLIENT_OF_ANY_USER: Entity = (("user", None), ("client-id", "loader"))


@pytest.fixture
def conversation() -> Conversation:
    """A cluster without a quota."""
    return Conversation().start(0)


def entry(entity: Entity, *quotas: tuple[str, float | None]) -> EntryData:
    """Return what is said of one entity; a value of `None` removes."""
    return EntryData(
        entity=tuple(EntityData(entity_type=each, entity_name=name) for each, name in entity),
        ops=tuple(
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in quotas
        ),
    )


def alter(conversation: Conversation, *entries: EntryData, validate_only: bool = False) -> ControllerResult:
    """Change quotas."""
    return conversation.say(AlterClientQuotasRequest(entries=entries, validate_only=validate_only))


def outcomes(decision: ControllerResult) -> list[tuple[ErrorCode, str | None]]:
    """Return what became of each entity."""
    return [(answer.error_code, answer.error_message) for answer in decision.reply.entries]


def test_alter_sets_what_differs_and_removes_what_is_there(conversation: Conversation) -> None:
    """Every record wakes every broker, and the names come back as they were asked for."""
    decision = alter(
        conversation, entry(CLIENT_OF_ANY_USER, ("producer_byte_rate", 1000.0), ("request_percentage", 12.5))
    )
    parts = (
        QuotaEntityData(entity_type="client-id", entity_name="loader"),
        QuotaEntityData(entity_type="user", entity_name=None),
    )
    assert decision.records == [
        ClientQuotaRecord(entity=parts, key="producer_byte_rate", value=1000.0),
        ClientQuotaRecord(entity=parts, key="request_percentage", value=12.5),
    ]
    assert {(part.entity_type, part.entity_name) for part in decision.reply.entries[0].entity} == set(
        CLIENT_OF_ANY_USER
    )
    again = alter(
        conversation,
        entry(
            CLIENT_OF_ANY_USER,
            ("producer_byte_rate", 1000.0),
            ("request_percentage", None),
            ("consumer_byte_rate", None),
        ),
    )
    assert again.records == [ClientQuotaRecord(entity=parts, key="request_percentage", remove=True)]
    assert conversation.image.client_quotas == {
        (("client-id", "loader"), ("user", None)): {"producer_byte_rate": 1000.0}
    }


def test_last_quota_of_an_entity_leaves_nothing_of_it(conversation: Conversation) -> None:
    """Snapshots and answers would fill with entities that say nothing."""
    alter(conversation, entry(USER, ("producer_byte_rate", 1.0)))
    alter(conversation, entry(USER, ("producer_byte_rate", None)))
    assert conversation.image.client_quotas == {}


def test_validate_only_says_the_same_and_changes_nothing(conversation: Conversation) -> None:
    """A dry run is asked for before a change that throttles everybody."""
    decision = alter(
        conversation,
        entry(USER, ("producer_byte_rate", 5.0)),
        entry((("ip", "10.0.0.1"),), ("producer_byte_rate", 5.0)),
        validate_only=True,
    )
    assert decision.records == []
    assert [code for code, _ in outcomes(decision)] == [ErrorCode.none, ErrorCode.invalid_request]


@pytest.mark.parametrize(
    ("entity", "quota", "message"),
    [
        (USER, ("producer_byte_rate", 0.0), "Quota producer_byte_rate must be greater than 0"),
        (USER, ("producer_byte_rate", -1.0), "Quota producer_byte_rate must be greater than 0"),
        (USER, ("request_percentage", math.nan), "Quota request_percentage must be greater than 0"),
        (USER, ("producer_byte_rate", math.inf), "Proposed value for producer_byte_rate is too large"),
        (USER, ("consumer_byte_rate", 1.5), "consumer_byte_rate cannot be a fractional value."),
        (USER, ("no_such_rate", 1.0), "Invalid configuration key no_such_rate"),
        (USER, ("connection_creation_rate", 1.0), "Invalid configuration key connection_creation_rate"),
        ((("ip", None),), ("producer_byte_rate", 1.0), "Invalid configuration key producer_byte_rate"),
        ((("ip", None),), ("connection_creation_rate", 2.0**31), "is too large for an INT."),
        ((("ip", "no-address"),), ("connection_creation_rate", 1.0), "no-address is not a valid IP."),
        ((("ip", "10.0.0.1"), ("user", "a")), ("connection_creation_rate", 1.0), "Invalid quota entity comb"),
        ((), ("producer_byte_rate", 1.0), "Invalid empty client quota entity"),
        ((("group", "a"),), ("producer_byte_rate", 1.0), "Unhandled client quota entity type: group"),
        ((("user", ""),), ("producer_byte_rate", 1.0), "Empty user not supported"),
        ((("user", "a"), ("user", "b")), ("producer_byte_rate", 1.0), "duplicate entity entry user"),
    ],
)
def test_bad_quota_is_refused_and_nothing_else_of_its_entity_changes(
    conversation: Conversation, entity: Entity, quota: tuple[str, float], message: str
) -> None:
    """Half of what was asked for an entity would be a limit that nobody chose."""
    decision = alter(
        conversation,
        entry(entity, ("request_percentage", 50.0), quota)
        if entity == USER and quota[0] != "request_percentage"
        else entry(entity, quota),
    )
    assert decision.records == []
    ((code, said),) = outcomes(decision)
    assert code is ErrorCode.invalid_request
    assert said is not None
    assert message in said


def test_entity_or_key_named_twice_is_refused(conversation: Conversation) -> None:
    """Which of two values was meant, nobody can tell."""
    other: Any = (("user", "other"),)
    decision = alter(
        conversation,
        entry(USER, ("producer_byte_rate", 1.0)),
        entry(USER, ("producer_byte_rate", 2.0)),
        entry(other, ("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)),
    )
    assert decision.records == []
    assert [code for code, _ in outcomes(decision)] == [ErrorCode.invalid_request] * 2
