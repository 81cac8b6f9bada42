"""Authorization by a listener's dispatcher, with an authorizer configured (`Admission.authorize`).

Every request gets the access of its principal at its host, by the ACLs of the newest image, and passes the
guard in the row of its API (`sparklog/node/apis`). A request of an API without a guard is refused.

Order for the caller: `admit` for each request, on one loop; `close` at the end.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import Acl, AclOperation, AclResourceType
from sparklog.node.acls.host import host_of
from sparklog.node.acls.machine.authorizer import MAX_KEPT_NAME, Authorizer, AuthorizerSettings, Decisions
from sparklog.node.authorization.guards.guard import Guard
from sparklog.node.limits.rate_limited_log import RateLimitedLog
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.serving.request_metrics import api_name
from sparklog.node.serving.requests import Handler, Request
from sparklog.protocol.codec.apis import ApiKey

AUDIT_LOGGER: Final = "kafka.authorizer.logger"
"""Kafka's name, so that operators find the log and can route it as in Kafka."""


class Authorization:
    """Checks the ACLs of the newest image. Everything on one loop."""

    def __init__(
        self,
        settings: AuthorizerSettings,
        guards: Mapping[ApiKey, Guard],
        image: Callable[[], MetadataImage],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._guards = guards
        self._image = image
        self._acls = EMPTY_IMAGE.acls
        self._authorizer = Authorizer((), settings)
        self._log = RateLimitedLog(logging.getLogger(AUDIT_LOGGER), loop)

    def admit(self, request: Request, handler: Handler) -> Any:
        """Handle a request that has its principal, as far as that principal is authorized."""
        image = self._image()
        if image.acls is not self._acls:
            self._authorizer = self._authorizer.changed(
                added=_missing(image.acls, self._acls), removed=_missing(self._acls, image.acls)
            )
            self._acls = image.acls
        host = request.host or host_of(request.connection.peer)
        decisions = self._authorizer.decisions(request.principal, host)
        request.access = access = Access(decisions, image, request.api_key, self._denied)
        return self._guards[request.api_key](access, request, handler)

    def admitting(self, handler: Handler) -> Handler:
        """Return the handler with authorization, for requests that no authorizing dispatcher has passed."""
        return lambda request: self.admit(request, handler)

    def close(self) -> None:
        """Write the pending counts of denials."""
        self._log.close()

    def _denied(
        self,
        decisions: Decisions,
        api_key: int,
        operation: AclOperation,
        resource_type: AclResourceType,
        resource_name: str,
    ) -> None:
        rule = decisions.rule(operation, resource_type, resource_name)
        principal = _shown(str(decisions.principal))
        # One line a minute and the count for each principal and operation: clients choose the names.
        self._log.write(
            logging.INFO,
            f"{principal} at {decisions.host}",
            f"{operation.name} {resource_type.name}",
            f"Principal = {principal} is Denied operation = {operation.name} from host = "
            f"{decisions.host} on resource = {resource_type.name}:LITERAL:{_shown(resource_name)} "
            f"for request = {api_name(ApiKey(api_key))} based on rule {rule}",
        )


def _shown(name: str) -> str:
    """Return a client's name as a part of one log line, escaped so that it cannot forge another line.

    >>> _shown("orders"), _shown("orders\\nPrincipal = User:ann")
    ('orders', "'orders\\\\nPrincipal = User:ann'")
    """
    shown = name if len(name) <= MAX_KEPT_NAME else f"{name[:MAX_KEPT_NAME]}..."
    return shown if shown.isprintable() else repr(shown)


def _missing(acls: Mapping[UUID, Acl], others: Mapping[UUID, Acl]) -> list[Acl]:
    return [acls[acl_id] for acl_id in set(acls).difference(others)]
