"""The overview in a terminal: no taller than the window, troubles first."""

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparklog.driver.ui.machine.groups import GroupSummary, is_moving
from sparklog.driver.ui.pages.number_formats import count, rate, size
from sparklog.driver.ui.pages.tables import shortened
from sparklog.jobs.top.observation import BrokerRow, Overview, TopicRow, Troubled
from sparklog.jobs.top.tier_figures import TopicTier

MAX_TROUBLED: Final = 10
MAX_GROUPS: Final = 5
_LINES_AROUND: Final = 14
"""Titles, headings and rules, besides the rows."""


def screen(overview: Overview, height: int) -> RenderableType:
    """Return a rendering of at most `height` lines."""
    troubled = overview.troubled[:MAX_TROUBLED]
    groups = overview.groups.groups[:MAX_GROUPS]
    left = height - _LINES_AROUND - len(overview.brokers) - len(troubled) - (len(groups) + 2 if groups else 0)
    parts: list[RenderableType] = [_head(overview), _brokers(overview.brokers)]
    if troubled:
        parts.append(_troubled(troubled, len(overview.troubled)))
    if groups:
        parts.append(_groups(groups, overview.groups.group_count))
    parts.append(_topics(overview.topics[: max(3, left)], len(overview.topics)))
    return Group(*parts)


def _head(overview: Overview) -> Text:
    offline = sum(each.leader is None for each in overview.troubled)
    others = len(overview.troubled) - offline
    head = Text(f"Cluster {overview.cluster_id}  controller {_or_dash(overview.controller_id)}")
    if overview.leader_epoch is not None:
        lags = ", ".join(f"{voter.node_id} {count(voter.lag)}" for voter in overview.voters)
        head.append(f"  epoch {overview.leader_epoch}  voters' lag: {lags}")
    head.append(f"\n{count(overview.partitions)} partitions of {count(len(overview.topics))} topics: ")
    if not overview.troubled:
        head.append("all in sync", "green")
    if offline:
        head.append(f"{count(offline)} offline ", "bold red")
    if others:
        head.append(f"{count(others)} under-replicated", "yellow")
    return head


def _brokers(brokers: tuple[BrokerRow, ...]) -> Table:
    table = _table("Id", "State", "Rack", "Address", "<Leads/holds/in sync", "<Records in", "<Log", "<Free")
    for broker in brokers:
        state = Text("fenced", "bold red") if broker.is_fenced else Text("in service", "green")
        if broker.offline_directories:
            state.append(f", {broker.offline_directories} disks failed", "bold red")
        table.add_row(
            str(broker.node_id),
            state,
            Text(broker.rack or ""),
            Text(broker.address),
            f"{count(broker.led)}/{count(broker.held)}/{count(broker.in_sync)}",
            rate(broker.records_in_per_s),
            size(broker.log_bytes),
            size(broker.usable_bytes),
        )
    return table


def _troubled(troubled: tuple[Troubled, ...], all_of_them: int) -> Table:
    table = _table("Partition", "<Leader", "Replicas", "In sync")
    for each in troubled:
        table.add_row(
            Text(each.name, "bold red" if each.leader is None else "yellow"),
            _or_dash(each.leader),
            ", ".join(map(str, each.replicas)),
            ", ".join(map(str, each.isr)),
        )
    if all_of_them > len(troubled):
        table.add_row(f"and {count(all_of_them - len(troubled))} more")
    return table


def _groups(groups: tuple[GroupSummary, ...], all_of_them: int | None) -> Table:
    table = _table("Group", "State", "<Coordinator", "<Partitions", "<Lag")
    for group in groups:
        table.add_row(
            Text(shortened(group.group_id) or ""),
            Text(group.state, "yellow" if is_moving(group.state) else ""),
            str(group.coordinator),
            count(group.partitions),
            count(group.lag),
        )
    if all_of_them is not None and all_of_them > len(groups):
        table.add_row(f"and {count(all_of_them - len(groups))} more")
    return table


def _figures(tier: TopicTier | None) -> list[str]:
    if tier is None:
        return [size(None), size(None), rate(None)]
    return [size(tier.remote_bytes), size(tier.copy_lag_bytes), rate(tier.reads_per_s)]


def _topics(topics: tuple[TopicRow, ...], all_of_them: int) -> Table:
    columns = ["Topic", "<Partitions", "<Records", "<Records in", "<Log, all replicas"]
    has_tier = any(topic.tiered_records is not None for topic in topics)
    has_figures = any(topic.tier is not None for topic in topics)
    if has_tier:
        columns += ["<In the tier", "<Not yet"]
    if has_figures:
        columns += ["<Tier", "<Not copied", "<Tier reads"]
    table = _table(*columns)
    for topic in topics:
        tiered, records = topic.tiered_records, topic.records
        lag = None if tiered is None or records is None else max(0, records - tiered)
        table.add_row(
            Text(topic.name),
            count(topic.partitions),
            count(records),
            rate(topic.records_in_per_s),
            size(topic.log_bytes),
            *([count(tiered), count(lag)] if has_tier else []),
            *(_figures(topic.tier) if has_figures else []),
        )
    if all_of_them > len(topics):
        table.add_row(f"and {count(all_of_them - len(topics))} more")
    return table


def _table(*columns: str) -> Table:
    """Return a table; columns whose names begin with `<` are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column.startswith("<")
        table.add_column(column.removeprefix("<"), justify="right" if is_number else "left")
    return table


def _or_dash(number: int | None) -> str:
    return count(number) if number is None else str(number)
