"""Values on the page of a stage whose tasks are brokers."""

from collections.abc import Iterable

from sparklog.driver.ui.machine.status import BrokerStatus, BrokerStatusMetrics
from sparklog.driver.ui.pages import number_formats as written

_NOT_MEASURED = BrokerStatusMetrics()


def stage_metrics(brokers: Iterable[BrokerStatus]) -> dict[int, dict[str, str]]:
    """Return by stage the names and values of its running brokers."""
    stages: dict[int, dict[str, str]] = {}
    for broker in brokers:
        if broker.task is None:
            continue
        name = f"broker {broker.node_id}"
        metrics = broker.figures or _NOT_MEASURED
        stages.setdefault(broker.task.stage_id, {}).update(
            {
                f"{name}: state": broker.state,
                f"{name}: partitions led": written.count(broker.partitions_led),
                f"{name}: partitions held": written.count(broker.partitions_held),
                f"{name}: bytes in": written.size_rate(metrics.bytes_in_per_s),
                f"{name}: bytes out": written.size_rate(metrics.bytes_out_per_s),
                f"{name}: records in": written.rate(metrics.records_in_per_s),
                f"{name}: log size": written.size(metrics.log_size_bytes),
            }
        )
    return stages
