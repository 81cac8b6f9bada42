"""All metrics by name; docs/monitoring.md explains each."""

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final, NamedTuple

from sparklog.node.metrics import (
    controller,
    coordinators,
    network,
    process,
    quotas,
    remote_log,
    server,
    storage,
    tables,
)
from sparklog.node.metrics.names import Metric, MetricName


class _Key(NamedTuple):
    group: str
    type: str
    name: str | None
    attribute: str | None
    """Only of metrics without a name."""


def _key(group: str, type_: str, name: str | None, attribute: str) -> _Key:
    return _Key(group, type_, name, attribute if name is None else None)


def metrics_of(module: ModuleType) -> Iterator[Metric]:
    """Yield the metrics that a module defines: as constants, in tuples, and as the values of mappings."""
    for value in vars(module).values():
        if isinstance(value, Metric):
            yield value
        elif isinstance(value, tuple | dict):
            among = value.values() if isinstance(value, dict) else value
            yield from (each for each in among if isinstance(each, Metric))


_MODULES: Final = (network, server, storage, remote_log, tables, quotas, coordinators, controller, process)
CATALOGUE: Final = tuple(metric for module in _MODULES for metric in metrics_of(module))

_BY_KEY: Final[Mapping[_Key, Metric]] = {
    _key(metric.group, metric.type, metric.name, metric.attribute): metric for metric in CATALOGUE
}


def metric_of(name: MetricName) -> Metric | None:
    """Return the metric that a sample belongs to; None for an unknown name."""
    return _BY_KEY.get(_key(name.group, name.type, name.name, name.attribute))
