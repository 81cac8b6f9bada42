"""Quotas of clients."""

from typing import Any, Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.parts import Parts
from sparklog.node.apis.refusals import item, said
from sparklog.node.apis.row import FORWARDED, ApiRow, Offer
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.errors import KafkaError


def _description_refused(body: Any, error: KafkaError) -> Any:
    return answer_to(body, entries=None, **said(error))


DESCRIBE_CLIENT_QUOTAS: Final = ApiRow(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    SupportedVersions(0, 1),
    broker=Offer(of_cluster(AclOperation.DESCRIBE_CONFIGS)),
    controller=Offer(of_cluster(AclOperation.DESCRIBE_CONFIGS), many=False),
    also_in_envelope=True,
    refused=_description_refused,
)


def _alteration_refused(body: Any, error: KafkaError) -> Any:
    entries = tuple(
        item(
            body,
            "entries",
            entity=tuple(
                item(body, "entries", "entity", entity_type=part.entity_type, entity_name=part.entity_name)
                for part in entry.entity
            ),
            **said(error),
        )
        for entry in body.entries
    )
    return answer_to(body, entries=entries)


ALTER_CLIENT_QUOTAS: Final = ApiRow(
    ApiKey.ALTER_CLIENT_QUOTAS,
    SupportedVersions(0, 1),
    broker=FORWARDED,
    controller=Offer(of_cluster(AclOperation.ALTER_CONFIGS)),
    refused=_alteration_refused,
    parts=Parts(
        "entries",
        "entries",
        lambda entry: frozenset((part.entity_type, part.entity_name) for part in entry.entity[:4]),
    ),
)
