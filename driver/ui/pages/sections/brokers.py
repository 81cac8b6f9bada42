"""The brokers: place, state and load."""

from sparklog.driver.ui.machine.status import BrokerAvailability, BrokerStatus, BrokerStatusMetrics
from sparklog.driver.ui.pages.html import Content, Html, Link, element, joined, link_to
from sparklog.driver.ui.pages.number_formats import count, duration, rate, size, size_rate
from sparklog.driver.ui.pages.sections.section import Section, Shown
from sparklog.driver.ui.pages.tables import Cell, plain, right, section, table

_COLUMNS = (
    "Broker", "State", "Rack", "Where", "Leads", "Holds", "In sync",
    "In", "Out", "Records in", "Requests", "Produce p99", "Fetch p99", "Log", "Free", "Loop lag", "Restarts",
)  # fmt: skip
_COLOURS = {
    BrokerAvailability.SERVING: "text-bg-success",
    BrokerAvailability.LEAVING: "text-bg-warning",
    BrokerAvailability.FENCED: "text-bg-danger",
    BrokerAvailability.MISSING: "text-bg-danger",
}
_NOT_MEASURED = BrokerStatusMetrics()


def _shows(shown: Shown) -> tuple[BrokerStatus, ...]:
    return shown.status.brokers


def _render(brokers: tuple[BrokerStatus, ...]) -> Html:
    rows = [_row(broker) for broker in brokers]
    return section("Brokers", table(_COLUMNS, rows, empty="There are none."), id_="sl-brokers")


def _row(broker: BrokerStatus) -> list[Cell]:
    metrics = broker.figures or _NOT_MEASURED
    requests = metrics.requests
    p99_ms = {each.api: each.p99_ms for each in requests}
    return [
        right(broker.node_id),
        plain(element("span", broker.state, class_=f"badge {_COLOURS[broker.state]}")),
        Cell(broker.rack, "text-nowrap"),
        plain(_place(broker)),
        right(count(broker.partitions_led)),
        right(count(broker.partitions_held)),
        right(count(broker.partitions_in_sync)),
        right(size_rate(metrics.bytes_in_per_s)),
        right(size_rate(metrics.bytes_out_per_s)),
        right(rate(metrics.records_in_per_s)),
        right(element("span", _request_rate(metrics), title=_by_api(metrics))),
        right(duration(p99_ms.get("Produce"))),
        right(duration(p99_ms.get("FetchConsumer"))),
        right(size(metrics.log_size_bytes)),
        right(size(metrics.free_bytes)),
        right(duration(metrics.loop_lag_ms)),
        right(count(broker.restarts)),
    ]


def _place(broker: BrokerStatus) -> Content:
    task = broker.task
    if task is None:
        return broker.listener
    links: list[Content] = [
        broker.listener,
        element("br"),
        link_to(Link("/executors/"), f"executor {task.executor_id} on {task.host}"),
        ", ",
        link_to(Link(f"/stages/stage/?id={task.stage_id}&attempt=0"), "stage"),
    ]
    for name, url in task.logs:
        links += [", ", link_to(url, name)]
    return joined(links)


def _request_rate(metrics: BrokerStatusMetrics) -> str:
    requests = metrics.requests
    return rate(sum(each.requests_per_s for each in requests) if requests else None)


def _by_api(metrics: BrokerStatusMetrics) -> str:
    return "\n".join(
        f"{each.api}: {rate(each.requests_per_s)}, p99 {duration(each.p99_ms)}" for each in metrics.requests
    )


BROKERS = Section(_shows, _render)
