"""DescribeClientQuotas: which entities a filter finds, and which filters are refused."""

from typing import Any

import pytest
from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.responses.describe_client_quotas import (
    describe_client_quotas_response,
    describe_user_scram_credentials_response,
)
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode

EXACT, DEFAULT, SPECIFIED = range(3)
ALICE, ANYBODY = (("user", "alice"),), (("user", None),)
LOADER_OF_ALICE = (("client-id", "loader"), ("user", "alice"))
LOADER, ADDRESS = (("client-id", "loader"),), (("ip", "10.0.0.1"),)
IMAGE = MetadataImage(
    client_quotas={
        entity: {"producer_byte_rate": 10.0} for entity in (ALICE, ANYBODY, LOADER_OF_ALICE, LOADER, ADDRESS)
    }
)


def ask(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """Return the answer to a filter."""
    request = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=entity_type, match_type=match_type, match=match)
            for entity_type, match_type, match in components
        ),
        strict=strict,
    )
    return in_one_go(describe_client_quotas_response(IMAGE, request))


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ((), False, {ALICE, ANYBODY, LOADER_OF_ALICE, LOADER, ADDRESS}),
        ((), True, set()),
        ((("user", EXACT, "alice"),), False, {ALICE, LOADER_OF_ALICE}),
        ((("user", EXACT, "alice"),), True, {ALICE}),
        ((("user", DEFAULT, None),), False, {ANYBODY}),
        ((("user", SPECIFIED, None),), True, {ALICE, ANYBODY}),
        ((("user", SPECIFIED, None), ("client-id", EXACT, "loader")), True, {LOADER_OF_ALICE}),
        ((("ip", SPECIFIED, None),), False, {ADDRESS}),
        ((("user", EXACT, "bob"),), False, set()),
    ],
)
def test_filter_finds_the_entities_it_describes(
    components: tuple[tuple[str, int, str | None], ...], strict: bool, found: set[Any]
) -> None:
    """Kafka's tools look first at what is set, and change it by what they saw."""
    answer = ask(*components, strict=strict)
    assert answer.error_code is ErrorCode.none
    assert {
        tuple((part.entity_type, part.entity_name) for part in entry.entity) for entry in answer.entries
    } == found


@pytest.mark.parametrize(
    ("components", "error_code"),
    [
        ((("", EXACT, "a"),), ErrorCode.invalid_request),
        ((("group", EXACT, "a"),), ErrorCode.unsupported_version),
        ((("user", EXACT, "a"), ("user", DEFAULT, None)), ErrorCode.invalid_request),
        ((("user", EXACT, None),), ErrorCode.invalid_request),
        ((("user", DEFAULT, "a"),), ErrorCode.invalid_request),
        ((("user", SPECIFIED, "a"),), ErrorCode.invalid_request),
        ((("user", 3, None),), ErrorCode.invalid_request),
        ((("user", DEFAULT, None), ("ip", DEFAULT, None)), ErrorCode.invalid_request),
    ],
)
def test_filter_that_means_nothing_is_refused(
    components: tuple[tuple[str, int, str | None], ...], error_code: ErrorCode
) -> None:
    """An empty answer would read as: there are no quotas."""
    answer = ask(*components)
    assert (answer.error_code, answer.entries) == (error_code, None)


def test_scram_credentials_of_nobody_are_known() -> None:
    """kafka-configs asks for them beside a user's quotas, and fails if it gets no answer."""
    request = DescribeUserScramCredentialsRequest(users=tuple(map(UserName, ())))
    assert in_one_go(describe_user_scram_credentials_response(EMPTY_IMAGE, request)).results == ()
    users = tuple(UserName(name=name) for name in ("alice", "bob", "bob"))
    answer = in_one_go(
        describe_user_scram_credentials_response(
            EMPTY_IMAGE, DescribeUserScramCredentialsRequest(users=users)
        )
    )
    assert [(each.user, each.error_code) for each in answer.results] == [
        ("alice", ErrorCode.resource_not_found),
        ("bob", ErrorCode.duplicate_resource),
    ]
