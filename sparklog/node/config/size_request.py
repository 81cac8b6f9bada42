"""The size of a cluster as a configuration of all brokers: the request that changes it, and its values."""

from collections.abc import Mapping

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from sparklog.node.config.broker import BROKER_KEYS
from sparklog.node.config.keys.controller_keys import BROKERS_PER_RACK_KEY, RACKS_KEY
from sparklog.node.config.keys.rack_keys import NAMES_KEY
from sparklog.node.metadata.cluster_size import SizeChange
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


def configured_numbers(configs: Mapping[str, str]) -> SizeChange:
    """Return the numbers that are configured; None for one that is not."""
    racks, brokers_per_rack = configs.get(RACKS_KEY), configs.get(BROKERS_PER_RACK_KEY)
    return SizeChange(
        None if racks is None else int(racks), None if brokers_per_rack is None else int(brokers_per_rack)
    )


def configured_rack_names(configs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configured names of racks, in their order.

    >>> configured_rack_names({"sparklog.rack.names": "east, west"})
    ('east', 'west')
    """
    names = BROKER_KEYS[NAMES_KEY].parse(configs.get(NAMES_KEY, ""))
    assert isinstance(names, tuple), "the key is a list"
    return names
