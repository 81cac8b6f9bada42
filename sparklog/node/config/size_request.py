"""The request that changes the size of a cluster: a configuration of all brokers."""

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from sparklog.node.config.keys.controller_keys import BROKERS_PER_RACK_KEY, RACKS_KEY
from sparklog.node.metadata.schemas import ResourceType


def size_request(racks: int | None, brokers_per_rack: int | None) -> IncrementalAlterConfigsRequest:
    """Return the request that changes the numbers that are not None."""
    values = {RACKS_KEY: racks, BROKERS_PER_RACK_KEY: brokers_per_rack}
    configs = tuple(
        AlterableConfig(name=name, config_operation=0, value=str(value))
        for name, value in values.items()
        if value is not None
    )
    resource = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="", configs=configs)
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
