"""Who is asked for what when a request comes: the newest ACLs, the host it came from, and what is logged."""

import asyncio
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    Principal,
)
from sparklog.node.acls.machine.authorizer import AuthorizerSettings
from sparklog.node.authorization.authorization import AUDIT_LOGGER, Authorization
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.serving.requests import Handler, Request
from sparklog.protocol.codec.apis import ApiKey

READ_T = (AclOperation.READ, AclResourceType.TOPIC, "t")
FOR_ANN = Acl(
    AclResourceType.TOPIC,
    PatternType.LITERAL,
    "t",
    "User:ann",
    "0:0:0:0:0:0:0:1",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)


def asks_to_read(access: Access, request: Request, handler: Handler) -> bool:
    """Guard for tests: answer whether topic t may be read."""
    return access.allows(*READ_T)


def request_of(name: str, peer: str = "[::1]:9", host: str | None = None) -> Request:
    """Return a request of a user."""
    connection: Any = SimpleNamespace(peer=peer)
    request = Request(ApiKey.FETCH, 17, 1, "client", None, memoryview(b""), connection, "test")
    request.principal = Principal("User", name)
    request.host = host
    return request


class Asking:
    """An authorization whose image changes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.authorization = Authorization(
            AuthorizerSettings(), {ApiKey.FETCH: asks_to_read}, lambda: self.image, loop
        )

    def may_read(self, request: Request) -> bool:
        """Whether the request may read topic t."""
        allowed: bool = self.authorization.admit(request, lambda _: None)
        return allowed


def test_request_is_asked_by_the_newest_acls_for_its_principal_and_host() -> None:
    """By old ACLs somebody would get in who was shut out; and a forwarded request has a host of its own."""

    async def scenario() -> None:
        asking = Asking(asyncio.get_running_loop())
        assert not asking.may_read(request_of("ann"))
        asking.image = replace(EMPTY_IMAGE, acls={UUID(int=1): FOR_ANN})
        assert asking.may_read(request_of("ann"))
        assert not asking.may_read(request_of("bob"))
        assert not asking.may_read(request_of("ann", peer="127.0.0.1:9"))
        assert not asking.may_read(request_of("ann", host="10.0.0.1"))
        assert asking.may_read(request_of("ann", peer="127.0.0.1:9", host="0:0:0:0:0:0:0:1"))
        asking.image = replace(EMPTY_IMAGE, acls={})
        assert not asking.may_read(request_of("ann"))
        asking.authorization.close()

    asyncio.run(scenario())


def test_denials_are_logged_once_a_minute_with_whose_and_what(caplog: pytest.LogCaptureFixture) -> None:
    """Who tries a million names must not fill the disk; one who is shut out by mistake must be found."""

    async def scenario() -> None:
        asking = Asking(asyncio.get_running_loop())
        for _ in range(100):
            assert not asking.may_read(request_of("ann"))
        assert not asking.may_read(request_of("bob"))
        asking.authorization.close()

    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        asyncio.run(scenario())
    said = [record.getMessage() for record in caplog.records if record.name == AUDIT_LOGGER]
    line = (
        "Principal = User:{} is Denied operation = READ from host = 0:0:0:0:0:0:0:1 on resource = "
        "TOPIC:LITERAL:t for request = Fetch based on rule DefaultDeny"
    )
    assert said[:2] == [line.format("ann"), line.format("bob")]
    assert "the last of 99 more from User:ann at 0:0:0:0:0:0:0:1" in said[2]


def test_denial_of_a_name_of_many_lines_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    """A name may be of 100 MiB, and of lines that say what never was."""
    forged = "t\nPrincipal = User:ann is Allowed" + 1_000_000 * "x"

    async def scenario() -> None:
        authorization = Authorization(
            AuthorizerSettings(),
            {
                ApiKey.FETCH: lambda access, *_: access.allows(
                    AclOperation.READ, AclResourceType.TOPIC, forged
                )
            },
            lambda: EMPTY_IMAGE,
            asyncio.get_running_loop(),
        )
        for _ in range(2):
            assert not authorization.admit(request_of("bob\nPrincipal = User:eve"), lambda _: None)
        authorization.close()

    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        asyncio.run(scenario())
    said = [record.getMessage() for record in caplog.records if record.name == AUDIT_LOGGER]
    assert len(said) == 2
    assert all("\n" not in line and len(line) < 1_000 for line in said)
    assert "TOPIC:LITERAL:'t\\nPrincipal = User:ann is Allowedxxx" in said[0]
