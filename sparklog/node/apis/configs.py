"""Configurations of topics, brokers, groups and client metrics."""

from typing import Any, Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.parts import Parts
from sparklog.node.apis.refusals import each_item
from sparklog.node.apis.row import FORWARDED, ApiRow, Offer
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.node.authorization.guards.configs import of_altered_resources, of_described_resources
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions


def _resource(resource: Any) -> tuple[Any, str]:
    return resource.resource_type, resource.resource_name


DESCRIBE_CONFIGS: Final = ApiRow(
    ApiKey.DESCRIBE_CONFIGS,
    SupportedVersions(1, 4),
    broker=Offer(of_described_resources),
    controller=Offer(of_described_resources),
    also_in_envelope=True,
)

ALTER_CONFIGS: Final = ApiRow(
    ApiKey.ALTER_CONFIGS,
    SupportedVersions(0, 2),
    broker=FORWARDED,
    controller=Offer(of_altered_resources),
    refused=each_item("resources", "responses", "resource_type", "resource_name"),
    parts=Parts("resources", "responses", _resource),
)

INCREMENTAL_ALTER_CONFIGS: Final = ApiRow(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    SupportedVersions(0, 1),
    broker=FORWARDED,
    controller=Offer(of_altered_resources),
    refused=each_item("resources", "responses", "resource_type", "resource_name"),
    parts=Parts("resources", "responses", _resource),
)

LIST_CONFIG_RESOURCES: Final = ApiRow(
    ApiKey.LIST_CONFIG_RESOURCES,
    SupportedVersions(0, 1),
    broker=Offer(of_cluster(AclOperation.DESCRIBE_CONFIGS)),
    controller=Offer(of_cluster(AclOperation.DESCRIBE_CONFIGS), many=False),
    also_in_envelope=True,
)
