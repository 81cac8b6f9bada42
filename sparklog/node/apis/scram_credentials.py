"""SCRAM credentials of users."""

from dataclasses import replace
from typing import Any, Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.refusals import item, said
from sparklog.node.apis.row import FORWARDED, ApiRow, Offer
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.errors import KafkaError


def _description_refused(body: Any, error: KafkaError) -> Any:
    results = (item(body, "results", **said(error)),) * len(body.users or ())
    return answer_to(body, results=results, **said(error))


DESCRIBE_USER_SCRAM_CREDENTIALS: Final = ApiRow(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    SupportedVersions(0, 0),
    broker=Offer(of_cluster(AclOperation.DESCRIBE)),
    controller=Offer(of_cluster(AclOperation.DESCRIBE)),
    also_in_envelope=True,
    refused=_description_refused,
    memory_times=10,
)


def _alteration_refused(body: Any, error: KafkaError) -> Any:
    users = dict.fromkeys(change.name for change in (*body.deletions, *body.upsertions))
    return answer_to(body, results=tuple(item(body, "results", user=user, **said(error)) for user in users))


ALTER_USER_SCRAM_CREDENTIALS: Final = ApiRow(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    SupportedVersions(0, 0),
    # Decided in one go, and hence about few users.
    broker=replace(FORWARDED, many=False),
    controller=Offer(of_cluster(AclOperation.ALTER), many=False),
    refused=_alteration_refused,
)
