"""A request at a guard: with the ACLs it is given, before a handler that notes what it was asked."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    Principal,
)
from sparklog.node.acls.machine.authorizer import Authorizer, AuthorizerSettings
from sparklog.node.authorization.guards.guard import Guard, filled
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage, TopicsImage
from sparklog.node.serving.requests import ANONYMOUS, Request
from sparklog.node.serving.turns import response_of
from sparklog.protocol.codec.apis import ApiKey, response_type
from sparklog.protocol.codec.steps import in_one_go

HOST: Final = "10.0.0.1"
TOPICS: Final = ("mine", "theirs")
TOPIC_IDS: Final = {name: UUID(int=number) for number, name in enumerate(TOPICS, 1)}
_TOPIC_IMAGES: Final = {name: TopicImage(name, TOPIC_IDS[name], {}) for name in TOPICS}
IMAGE: Final[MetadataImage] = replace(
    EMPTY_IMAGE,
    offset=1,
    topics=TopicsImage(_TOPIC_IMAGES, {topic.topic_id: topic for topic in _TOPIC_IMAGES.values()}),
)

Permission = tuple[AclOperation, AclResourceType, str]


def on_cluster(operation: AclOperation) -> Permission:
    """Return a permission on the cluster."""
    return operation, AclResourceType.CLUSTER, CLUSTER_NAME


def authorizer(permissions: Iterable[Permission], principal: Principal) -> Authorizer:
    """Return an authorizer that allows this, and nothing else."""
    acls = [
        Acl(resource_type, PatternType.LITERAL, name, str(principal), "*", operation, AclPermissionType.ALLOW)
        for operation, resource_type, name in permissions
    ]
    return Authorizer(acls, AuthorizerSettings())


def granted(permissions: Iterable[Permission], api_key: ApiKey, principal: Principal) -> Access:
    """Return the access of one request."""
    decisions = authorizer(permissions, principal).decisions(principal, HOST)
    return Access(decisions, IMAGE, int(api_key), lambda *denied: None)


class Guarding:
    """One guard, and what its handler was asked."""

    def __init__(self, guard: Guard, permissions: Iterable[Permission]) -> None:
        self._guard = guard
        self._authorizer = authorizer(permissions, ANONYMOUS)
        self.handled: list[Any] = []
        """The bodies that the handler got."""
        self.denied: list[tuple[AclOperation, AclResourceType, str]] = []
        """What went to the audit log."""

    def ask(
        self, api_key: ApiKey, version: int, body: Any, respond: Callable[[Request], Any] | None = None
    ) -> Any:
        """Return the answer; the handler answers by `respond`, or with an empty response."""

        def handle(request: Request) -> Any:
            self.handled.append(request.body)
            return filled(response_type(api_key, version)) if respond is None else respond(request)

        peer: Any = SimpleNamespace(peer=f"{HOST}:1", accepted_ms=0, client_software=("", ""), closed=False)
        request = Request(api_key, version, 1, "client", body, memoryview(b""), peer, "test")
        decisions = self._authorizer.decisions(ANONYMOUS, HOST)
        access = Access(decisions, IMAGE, int(api_key), lambda _, key, *denied: self.denied.append(denied))
        return in_one_go(response_of(self._guard(access, request, handle)))
