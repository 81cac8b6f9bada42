"""The metrics of a status that are points of charts."""

from collections.abc import Mapping

from sparklog.driver.ui.machine.status import Status


def chart_samples(status: Status) -> Mapping[str, Mapping[str, float | None]]:
    partitions = status.partitions
    charts: dict[str, dict[str, float | None]] = {
        "Partitions in trouble": {
            "offline": partitions.offline,
            "under min. ISR": partitions.under_min_isr,
            "under-replicated": partitions.under_replicated,
        },
        "Lag of streaming queries": {
            query.name or query.run_id: float(sum(lags))
            for query in status.queries
            if query.failure is None
            and (lags := [each.lag for each in query.sources if each.lag is not None])
        },
    }
    for broker in status.brokers:
        metrics = broker.figures
        if metrics is None:
            continue
        line = f"broker {broker.node_id}"
        p99 = {each.api: each.p99_ms for each in metrics.requests}
        for chart, value in (
            ("Bytes in", metrics.bytes_in_per_s),
            ("Bytes out", metrics.bytes_out_per_s),
            ("Records in", metrics.records_in_per_s),
            ("Produce p99", p99.get("Produce")),
            ("Fetch p99", p99.get("FetchConsumer")),
            ("Loop lag", metrics.loop_lag_ms),
            ("Log size", metrics.log_size_bytes),
        ):
            charts.setdefault(chart, {})[line] = value
    return {chart: lines for chart, lines in charts.items() if lines}
