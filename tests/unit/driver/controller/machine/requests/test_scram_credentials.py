"""AlterUserScramCredentials: what is kept of passwords, and what is refused, in Kafka's words."""

from hashlib import pbkdf2_hmac
from typing import Any

import pytest
from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata_log.machine.snapshot_records import snapshot_records
from sparklog.node.responses.describe_client_quotas import describe_user_scram_credentials_response
from sparklog.node.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation

NONE = ErrorCode.none


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt") -> Any:
    """Return how a client sets the password `pencil`."""
    algorithm = {1: "sha256", 2: "sha512"}.get(mechanism, "sha256")
    salted = pbkdf2_hmac(algorithm, b"pencil", salt, iterations)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def deletion(name: str, mechanism: int = 1) -> Any:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(conversation: Conversation, *changes: Any) -> dict[str, tuple[ErrorCode, str | None]]:
    """Return what became of each user."""
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(each for each in changes if isinstance(each, ScramCredentialDeletion)),
        upsertions=tuple(each for each in changes if isinstance(each, ScramCredentialUpsertion)),
    )
    results = conversation.say(request).reply.results
    return {result.user: (result.error_code, result.error_message) for result in results}


def described(conversation: Conversation, *names: str) -> dict[str, Any]:
    """Return what is told of users: the error, or mechanisms with their iterations."""
    users = tuple(UserName(name=name) for name in names)
    response = in_one_go(
        describe_user_scram_credentials_response(
            conversation.image, DescribeUserScramCredentialsRequest(users=users)
        )
    )
    return {
        result.user: result.error_code
        if result.error_code is not NONE
        else {info.mechanism: info.iterations for info in result.credential_infos}
        for result in response.results
    }


def test_password_that_is_set_is_known_by_its_keys_alone() -> None:
    """Whoever reads the metadata log can log in as nobody."""
    conversation = Conversation().start(0)
    assert alter(conversation, upsertion("ann"), upsertion("bob", 2, 8192)) == {
        "ann": (NONE, None),
        "bob": (NONE, None),
    }
    assert conversation.image.scram_credentials == {
        ("ann", SCRAM_SHA_256): ScramCredential.of_password(SCRAM_SHA_256, "pencil", 4096, b"salt"),
        ("bob", SCRAM_SHA_512): ScramCredential.of_password(SCRAM_SHA_512, "pencil", 8192, b"salt"),
    }
    assert described(conversation) == {"ann": {1: 4096}, "bob": {2: 8192}}
    assert described(conversation, "ann", "eve", "eve") == {
        "ann": {1: 4096},
        "eve": ErrorCode.duplicate_resource,
    }
    assert described(conversation, "eve") == {"eve": ErrorCode.resource_not_found}


def test_password_is_replaced_and_removed() -> None:
    """The other mechanism of the same user stays."""
    conversation = Conversation().start(0)
    alter(conversation, upsertion("ann", 1))
    alter(conversation, upsertion("ann", 2))
    assert alter(conversation, upsertion("ann", 1, 5000)) == {"ann": (NONE, None)}
    assert described(conversation) == {"ann": {1: 5000, 2: 4096}}
    assert alter(conversation, deletion("ann", 1)) == {"ann": (NONE, None)}
    assert described(conversation) == {"ann": {2: 4096}}


@pytest.mark.parametrize(
    ("change", "error_code", "message"),
    [
        (upsertion(""), ErrorCode.unacceptable_credential, "Username must not be empty"),
        (upsertion("ann", 3), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (upsertion("ann", iterations=4095), ErrorCode.unacceptable_credential, "Too few iterations"),
        (upsertion("ann", iterations=16385), ErrorCode.unacceptable_credential, "Too many iterations"),
        (
            deletion("ann"),
            ErrorCode.resource_not_found,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_change_that_is_refused_leaves_the_others(change: Any, error_code: ErrorCode, message: str) -> None:
    """Each user is answered for himself."""
    conversation = Conversation().start(0)
    assert alter(conversation, change, upsertion("bob")) == {
        change.name: (error_code, message),
        "bob": (NONE, None),
    }
    assert described(conversation) == {"bob": {1: 4096}}


def test_user_that_is_changed_twice_in_a_request_is_not_changed() -> None:
    """Nobody could say which of the two passwords he has."""
    conversation = Conversation().start(0)
    refused = ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
    assert alter(conversation, upsertion("ann", 1), upsertion("ann", 2)) == {"ann": refused}
    assert described(conversation) == {}


def test_snapshot_has_the_credentials_and_no_text_of_it_shows_a_key() -> None:
    """A driver that starts again knows the users; whoever prints a record sees none of the keys."""
    conversation = Conversation().start(0)
    alter(conversation, upsertion("ann"), upsertion("bob", 2))
    records = list(snapshot_records(conversation.image))
    image, _ = replay_records(EMPTY_IMAGE, records, 10, 1)
    assert image.scram_credentials == conversation.image.scram_credentials
    for credential in image.scram_credentials.values():
        for key in (credential.salt, credential.stored_key, credential.server_key):
            assert repr(key) not in repr(records)
