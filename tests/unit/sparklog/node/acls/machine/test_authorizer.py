"""The rules of StandardAuthorizer; `tests/compat/test_authorizer.py` compares them with Kafka's own."""

import itertools
import random
import tracemalloc
from collections import Counter

import pytest

from sparklog.node.acls.acl import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    Principal,
)
from sparklog.node.acls.machine.authorizer import (
    MAX_DECISIONS,
    MAX_KEPT_NAME,
    Authorizer,
    AuthorizerSettings,
    Rule,
)

ANN = Principal("User", "ann")
BOB = Principal("User", "bob")
ROOT = Principal("User", "root")
HOST = "10.0.0.1"

READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
TOPIC = AclResourceType.TOPIC


def acl(
    name: str,
    operation: AclOperation = READ,
    principal: str = "User:ann",
    *,
    host: str = "*",
    prefixed: bool = False,
    deny: bool = False,
    resource_type: AclResourceType = TOPIC,
) -> Acl:
    """Return an ACL."""
    return Acl(
        resource_type,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        name,
        principal,
        host,
        operation,
        AclPermissionType.DENY if deny else AclPermissionType.ALLOW,
    )


def allows(
    acls: list[Acl],
    operation: AclOperation = READ,
    name: str = "orders",
    principal: Principal = ANN,
    *,
    open_to_all: bool = False,
) -> bool:
    """Whether the ACLs allow something to a principal at `HOST`."""
    settings = AuthorizerSettings(frozenset({ROOT}), open_to_all)
    return Authorizer(acls, settings).decisions(principal, HOST).allows(operation, TOPIC, name)


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("orders")], True),
        ([acl("orders", principal="User:bob")], False),
        ([acl("orders", principal="User:*")], True),
        ([acl("orders", host=HOST)], True),
        ([acl("orders", host="10.0.0.2")], False),
        ([acl("orders", ALL)], True),
        ([acl("orders", WRITE)], False),
        ([acl("*")], True),
        ([acl("*", prefixed=True)], False),
        ([acl("ord", prefixed=True)], True),
        ([acl("orders", prefixed=True)], True),
        ([acl("orders2", prefixed=True)], False),
        ([acl("ord")], False),
        ([acl("orders", resource_type=AclResourceType.GROUP)], False),
        ([acl("orders"), acl("orders", deny=True)], False),
        ([acl("orders"), acl("o", deny=True, prefixed=True)], False),
        ([acl("orders"), acl("*", ALL, "User:*", deny=True)], False),
        ([acl("orders"), acl("orders", deny=True, host="10.0.0.2")], True),
    ],
)
def test_authorizer_matches_name_principal_host_and_operation(acls: list[Acl], allowed: bool) -> None:
    """What one ACL too many lets through, nobody notices."""
    assert allows(acls) is allowed


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_authorizer_allows_to_describe_what_may_be_used(operation: AclOperation) -> None:
    """Clients describe what they read and write; but who may not write may still describe."""
    assert allows([acl("orders", operation)], DESCRIBE)
    assert allows([acl("orders", operation, deny=True), acl("orders", DESCRIBE)], DESCRIBE)


def test_authorizer_allows_to_describe_configs_that_may_be_altered() -> None:
    """And only that follows from it."""
    acls = [acl("orders", AclOperation.ALTER_CONFIGS)]
    assert allows(acls, AclOperation.DESCRIBE_CONFIGS)
    assert not allows(acls, DESCRIBE)


def test_authorizer_allows_super_users_what_is_denied() -> None:
    """Somebody has to be able to mend ACLs."""
    assert allows([acl("*", ALL, "User:*", deny=True)], principal=ROOT)


def test_authorizer_without_an_acl_about_a_resource_does_as_it_is_configured() -> None:
    """An ACL for somebody else closes a resource that was open to all."""
    assert allows([], open_to_all=True)
    assert allows([acl("payments")], open_to_all=True)
    assert not allows([acl("ord", principal="User:bob", prefixed=True)], open_to_all=True)
    assert not allows([acl("*", WRITE)], open_to_all=True)


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("orders", WRITE)], True),
        ([acl("orders", READ)], False),
        ([acl("orders", WRITE, prefixed=True)], True),
        ([acl("*", WRITE)], True),
        ([acl("*", WRITE), acl("*", WRITE, deny=True)], False),
        ([acl("orders", WRITE), acl("orders", WRITE, deny=True)], False),
        ([acl("orders", WRITE), acl("ord", WRITE, deny=True, prefixed=True)], False),
        ([acl("orders", WRITE, prefixed=True), acl("orders", WRITE, deny=True)], True),
        ([acl("orders", WRITE), acl("payments", WRITE), acl("orders", ALL, deny=True)], True),
        ([acl("orders", WRITE, "User:bob")], False),
    ],
)
def test_authorizer_finds_whether_any_name_is_allowed(acls: list[Acl], allowed: bool) -> None:
    """Who may write to some topic may have a producer id; a DENY that covers all of them takes it away."""
    authorizer = Authorizer(acls, AuthorizerSettings())
    assert authorizer.allows_any(ANN, HOST, WRITE, TOPIC) is allowed


def test_authorizer_says_which_rule_denies() -> None:
    """The audit log names the ACL that is to be changed."""
    denying = acl("ord", principal="User:*", prefixed=True, deny=True)
    decisions = Authorizer([acl("orders"), denying], AuthorizerSettings()).decisions(ANN, HOST)
    assert str(decisions.rule(READ, TOPIC, "orders")) == (
        "MatchingAcl(DENY READ to User:* from * on TOPIC:PREFIXED:ord)"
    )
    assert decisions.rule(READ, TOPIC, "payments") == Rule(False, "DefaultDeny")


def test_authorizer_that_has_forgotten_decides_the_same() -> None:
    """Names are for anybody to choose; a forgotten decision is made again, and is the same."""
    decisions = Authorizer([acl("t77")], AuthorizerSettings()).decisions(ANN, HOST)
    told = [decisions.allows(READ, TOPIC, f"t{number}") for number in range(MAX_DECISIONS + 100)]
    assert told == [number == 77 for number in range(MAX_DECISIONS + 100)]
    assert decisions.allows(READ, TOPIC, "t77")


def test_decisions_about_names_that_are_too_long_are_made_and_not_kept() -> None:
    """A name may fill a request of 100 MiB: kept, some of them would be all of a broker's memory."""
    decisions = Authorizer([acl("a", prefixed=True)], AuthorizerSettings()).decisions(ANN, HOST)
    tracemalloc.start()
    try:
        for number in range(64):
            name = chr(ord("a") + number % 2) * (1 << 20)
            assert decisions.allows(READ, TOPIC, f"{name}{number}") == (number % 2 == 0)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 8 << 20
    longest = "a" * MAX_KEPT_NAME
    assert decisions.rule(READ, TOPIC, longest) is decisions.rule(READ, TOPIC, longest)


def test_authorizer_after_any_changes_decides_as_one_made_of_the_acls_that_are_left() -> None:
    """An ACL that is left behind in an index lets somebody in, long after it was removed."""
    source = random.Random(4)
    several = [
        acl(name, operation, principal, prefixed=prefixed, deny=deny, resource_type=resource_type)
        for name, operation, principal, prefixed, deny, resource_type in itertools.product(
            ("a", "ab", "*"),
            (READ, ALL),
            ("User:ann", "User:*"),
            (False, True),
            (False, True),
            (TOPIC, AclResourceType.GROUP),
        )
    ]
    authorizer, there = Authorizer((), AuthorizerSettings()), Counter[Acl]()
    for _ in range(300):
        removed = source.sample(list(there.elements()), min(there.total(), source.randrange(4)))
        added = source.choices(several, k=source.randrange(4))
        authorizer = authorizer.changed(added, removed)
        there.update(added)
        there.subtract(removed)
        afresh = Authorizer(there.elements(), AuthorizerSettings())
        for name, resource_type in itertools.product(("a", "abc", "b"), (TOPIC, AclResourceType.GROUP)):
            question = (ANN, HOST, READ, resource_type, name)
            assert authorizer.rule(*question).allows == afresh.rule(*question).allows
            assert authorizer.allows_any(*question[:4]) == afresh.allows_any(*question[:4])
