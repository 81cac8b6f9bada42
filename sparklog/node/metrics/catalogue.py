"""All metrics by name; docs/monitoring.md explains each."""

from collections.abc import Mapping
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


CATALOGUE: Final[tuple[Metric, ...]] = (
    *network.METRICS,
    *server.METRICS,
    *storage.METRICS,
    *remote_log.METRICS,
    *quotas.METRICS,
    *coordinators.METRICS,
    *controller.METRICS,
    *process.METRICS,
)

_BY_KEY: Final[Mapping[_Key, Metric]] = {
    _key(metric.group, metric.type, metric.name, metric.attribute): metric for metric in CATALOGUE
}


def metric_of(name: MetricName) -> Metric | None:
    """Return the metric that a sample belongs to; None for an unknown name."""
    return _BY_KEY.get(_key(name.group, name.type, name.name, name.attribute))
