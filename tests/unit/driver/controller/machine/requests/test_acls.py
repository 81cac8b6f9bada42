"""CreateAcls and DeleteAcls: each ACL made once or refused, each filter answered with what it matched."""

from uuid import UUID

import pytest
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest

from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.metadata.schemas import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation

READ = Acl(
    AclResourceType.TOPIC,
    PatternType.PREFIXED,
    "orders",
    "User:ann",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
ENABLED = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def creation(acl: Acl) -> AclCreation:
    """Return how an ACL is asked for."""
    fields = {**acl._asdict(), "resource_pattern_type": acl.pattern_type}
    del fields["pattern_type"]
    return AclCreation(**fields)


def filter_of(**fields: object) -> DeleteAclsFilter:
    """Return a filter, for everything but what is given."""
    anything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**{**anything, **fields})


@pytest.fixture
def conversation() -> Conversation:
    """A cluster with an authorizer and without an ACL."""
    return Conversation(**ENABLED).start(0)


def test_create_acls_makes_each_once(conversation: Conversation) -> None:
    """A tool that is run a second time changes nothing, and is told that all is well."""
    denied = READ._replace(permission_type=AclPermissionType.DENY)
    asked = CreateAclsRequest(creations=tuple(map(creation, (READ, denied, READ))))
    first, again = conversation.say(asked), conversation.say(asked)
    assert all(isinstance(record, AccessControlEntryRecord) for record in first.records)
    assert list(conversation.image.acls.values()) == [READ, denied]
    assert again.records == []
    for decision in (first, again):
        assert [result.error_code for result in decision.reply.results] == [ErrorCode.none] * 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"principal": "ann"}, "Could not parse principal from `ann` (no colon is present separating the "),
    ],
)
def test_create_acls_refuses_what_can_not_be_and_makes_the_others(
    conversation: Conversation, wrong: dict[str, object], message: str
) -> None:
    """One mistake among many ACLs is told where it is."""
    decision = conversation.say(
        CreateAclsRequest(creations=(creation(READ._replace(**wrong)), creation(READ)))  # type: ignore[arg-type]
    )
    refused, made = decision.reply.results
    assert refused.error_code is ErrorCode.invalid_request
    assert refused.error_message.startswith(message)
    assert made.error_code is ErrorCode.none
    assert list(conversation.image.acls.values()) == [READ]


def test_delete_acls_tells_every_filter_what_it_matched_and_removes_it_once(
    conversation: Conversation,
) -> None:
    """A second removal of one ACL could not be replayed, and every broker would stop."""
    write = READ._replace(operation=AclOperation.WRITE)
    other = READ._replace(resource_name="payments")
    conversation.say(CreateAclsRequest(creations=tuple(map(creation, (READ, write, other)))))
    decision = conversation.say(
        DeleteAclsRequest(
            filters=(
                filter_of(resource_name_filter="orders-1", pattern_type_filter=PatternType.MATCH),
                filter_of(operation=AclOperation.READ, resource_name_filter="orders"),
                filter_of(principal_filter="User:nobody"),
                filter_of(operation=99),
            )
        )
    )
    assert [type(record) for record in decision.records] == [RemoveAccessControlEntryRecord] * 2
    assert list(conversation.image.acls.values()) == [other]
    told = [
        (result.error_code.name, [acl.operation for acl in result.matching_acls])
        for result in decision.reply.filter_results
    ]
    assert told == [("none", [3, 4]), ("none", [3]), ("none", []), ("invalid_request", [])]


def test_delete_acls_of_more_than_one_request_may_remove_removes_none(conversation: Conversation) -> None:
    """Part of a removal is easily missed in a long answer."""
    for start in range(0, 10_001, 1000):
        many = [READ._replace(resource_name=f"t{number}") for number in range(start, start + 1000)]
        conversation.say(CreateAclsRequest(creations=tuple(map(creation, many))))
    decision = conversation.say(DeleteAclsRequest(filters=(filter_of(), filter_of(operation=4))))
    assert decision.records == []
    assert [result.error_code for result in decision.reply.filter_results] == [ErrorCode.invalid_request] * 2


def test_acls_without_an_authorizer_are_refused() -> None:
    """Whoever believes that his ACLs are obeyed is to be told that nobody is."""
    conversation = Conversation().start(0)
    created = conversation.say(CreateAclsRequest(creations=(creation(READ),)))
    deleted = conversation.say(DeleteAclsRequest(filters=(filter_of(),)))
    assert created.reply.results[0].error_code is ErrorCode.security_disabled
    assert deleted.reply.filter_results[0].error_code is ErrorCode.security_disabled
    assert created.records == deleted.records == []


def test_acl_ids_are_not_taken_twice(conversation: Conversation) -> None:
    """Topics and ACLs have their ids from one source."""
    conversation.say(CreateAclsRequest(creations=(creation(READ),)))
    conversation.say(CreateAclsRequest(creations=(creation(READ._replace(resource_name="other")),)))
    assert len(conversation.image.acls) == 2
    assert all(isinstance(acl_id, UUID) for acl_id in conversation.image.acls)
