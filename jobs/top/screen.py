"""The overview in a terminal: no taller than the window, troubles first.

Its data are the Log tab's JSON: the fields of `driver/ui/machine/status.py` and of `GroupPages.groups`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparklog.driver.ui.machine.groups import is_moving
from sparklog.driver.ui.pages.number_formats import NONE, count, duration, rate, size, size_rate
from sparklog.driver.ui.pages.tables import shortened

MAX_TROUBLED: Final = 10
MAX_GROUPS: Final = 5
_LINES_AROUND: Final = 14
"""Titles, headings and rules, besides the rows."""


def screen(overview: Mapping[str, Any], groups: Mapping[str, Any], height: int) -> RenderableType:
    """Return a rendering of at most `height` lines."""
    parts: list[RenderableType] = [_head(overview), _brokers(overview["brokers"])]
    left = height - _LINES_AROUND - len(overview["brokers"])
    partitions, tier = overview["partitions"], overview.get("tier")
    troubles = sum(partitions[kind] for kind in ("offline", "under_min_isr", "under_replicated"))
    for columns, rows, total in (
        (_TROUBLED, [_trouble(each) for each in partitions["troubled"][:MAX_TROUBLED]], troubles),
        (
            _GROUPS,
            [_group(each) for each in groups.get("groups", ())[:MAX_GROUPS]],
            groups.get("group_count"),
        ),
        (_TIER, [_tiered(each) for each in tier["topics"][:MAX_GROUPS]] if tier else [], 0),
    ):
        if rows:
            parts.append(_table(columns, rows, total or 0))
            left -= len(rows) + 2
    topics = [_topic(each) for each in overview["topics"][: max(3, left)]]
    return Group(*parts, _table(_TOPICS, topics, overview["topic_count"]))


def _head(overview: Mapping[str, Any]) -> Text:
    controller, partitions = overview["controller"], overview["partitions"]
    head = Text(f"Cluster {overview['cluster_id']}")
    if controller is not None:
        lags = ", ".join(f"{each['node_id']} {count(each['lag'])}" for each in controller["voters"])
        head.append(
            f"  controller {controller['node_id']}  epoch {controller['leader_epoch']}  voters' lag: {lags}"
        )
    if overview["missing"] is not None:
        head.append(f"\nNothing can be decided: {overview['missing']}", "bold red")
    head.append(f"\n{count(partitions['count'])} partitions of {count(overview['topic_count'])} topics: ")
    troubles = [
        (f"{count(partitions[kind])} {kind.replace('_', ' ')} ", style)
        for kind, style in (("offline", "bold red"), ("under_min_isr", "red"), ("under_replicated", "yellow"))
        if partitions[kind]
    ]
    for text, style in troubles or [("all in sync", "green")]:
        head.append(text, style)
    return head


_BROKERS: Final = (
    "Id", "State", "Rack", "Address", "<Leads/holds/in sync", "<In", "<Out", "<Log", "<Free", "<Loop lag",
)  # fmt: skip
_TROUBLED: Final = ("Partition", "<Leader", "Replicas", "In sync")
_GROUPS: Final = ("Group", "State", "<Coordinator", "<Partitions", "<Lag")
_TIER: Final = ("In the tier", "<Bytes", "<Not copied", "<Oldest of it", "<Reads")
_TOPICS: Final = ("Topic", "<Partitions", "<Replicas", "<Offline", "<Under-replicated")


def _brokers(brokers: Iterable[Mapping[str, Any]]) -> Table:
    return _table(_BROKERS, [_broker(broker, broker["figures"] or {}) for broker in brokers], 0)


def _broker(broker: Mapping[str, Any], metrics: Mapping[str, Any]) -> Sequence[str | Text]:
    held = (broker["partitions_led"], broker["partitions_held"], broker["partitions_in_sync"])
    return (
        str(broker["node_id"]),
        Text(broker["state"], "green" if broker["state"] == "in service" else "bold red"),
        Text(broker["rack"]),
        Text(broker["listener"] or NONE),
        "/".join(map(count, held)),
        size_rate(metrics.get("bytes_in_per_s")),
        size_rate(metrics.get("bytes_out_per_s")),
        size(metrics.get("log_size_bytes")),
        size(metrics.get("free_bytes")),
        duration(metrics.get("loop_lag_ms")),
    )


def _trouble(each: Mapping[str, Any]) -> Sequence[str | Text]:
    return (
        Text(f"{each['topic']}-{each['partition']}", "bold red" if each["leader"] is None else "yellow"),
        NONE if each["leader"] is None else str(each["leader"]),
        ", ".join(map(str, each["replicas"])),
        ", ".join(map(str, each["isr"])),
    )


def _group(group: Mapping[str, Any]) -> Sequence[str | Text]:
    return (
        Text(shortened(group["group_id"]) or ""),
        Text(group["state"], "yellow" if is_moving(group["state"]) else ""),
        str(group["coordinator"]),
        count(group["partitions"]),
        count(group["lag"]),
    )


def _tiered(topic: Mapping[str, Any]) -> Sequence[str | Text]:
    lag = (size(topic["copy_lag_bytes"]), duration(topic["copy_lag_ms"]))
    return (Text(topic["name"]), size(topic["tiered_bytes"]), *lag, rate(topic["reads_per_s"]))


def _topic(topic: Mapping[str, Any]) -> Sequence[str | Text]:
    numbers = ("partitions", "replicas", "offline", "under_replicated")
    return (Text(topic["name"]), *(count(topic[name]) for name in numbers))


def _table(columns: Iterable[str], rows: Sequence[Sequence[str | Text]], total: int) -> Table:
    """Return a table, with the number of rows left out; columns that begin with `<` are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column.startswith("<")
        table.add_column(column.removeprefix("<"), justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*row)
    if total > len(rows):
        table.add_row(f"and {count(total - len(rows))} more")
    return table
