"""Groups: the list of all, a page at a time, and one of them with its members and lag."""

from collections.abc import Sequence
from typing import Final

from sparklog.driver.ui.machine.groups import GroupPartition, GroupStatus, GroupSummary, is_moving
from sparklog.driver.ui.pages.html import Content, Html, element, joined, link_to, log_page
from sparklog.driver.ui.pages.number_formats import count
from sparklog.driver.ui.pages.tables import (
    Cell,
    is_linked,
    named,
    pages_of,
    paging,
    plain,
    right,
    rows_of_page,
    section,
    shortened,
    table,
)
from sparklog.user.client.groups import GroupMember

_SHOWN_PARTITIONS: Final = 20
"""Most partitions shown of a member, whose row stays one line."""


def groups_page(said: Html | None, groups: Sequence[GroupSummary], group_count: int, page: int) -> Html:
    """Return a page of groups out of `group_count`; `said` is shown above them."""
    pages = pages_of(group_count)
    page = min(max(1, page), pages)
    steps = paging(lambda number: log_page("groups", page=number), page, pages)
    columns = ("Group", "State", "Type", "Protocol", "Coordinator", "Members", "Partitions", "Lag")
    return joined(
        [
            element(
                "p",
                link_to(log_page(), "Overview"),
                f" \N{MIDDLE DOT} Groups: {count(group_count)}; rebalancing ones come first, "
                "then those without members",
            ),
            said,
            steps,
            table(columns, [_summary(each) for each in groups], empty="There are no groups."),
            steps,
        ]
    )


def group_page(said: Html | None, group: GroupStatus, page: int) -> Html:
    """Return page number `page` of a group, or the nearest one."""
    pages = pages_of(max(len(group.members), len(group.partitions)))
    page = min(max(1, page), pages)
    steps = paging(lambda number: log_page("group", name=group.group_id, page=number), page, pages)
    about: list[Content] = [
        _ways(),
        element("strong", named(group.group_id)),
        " ",
        _state(group.state),
        f" \N{MIDDLE DOT} {group.group_type}",
        f" \N{MIDDLE DOT} {group.protocol_type}" if group.protocol_type else None,
        f" \N{MIDDLE DOT} assignor {group.assignor}" if group.assignor else None,
        f" \N{MIDDLE DOT} coordinator broker {group.coordinator}",
        f" \N{MIDDLE DOT} epoch {group.group_epoch}, of the assignment {group.assignment_epoch}"
        if group.group_epoch is not None
        else None,
        f" \N{MIDDLE DOT} lag {count(group.lag)}",
    ]
    member_columns = ("Client id", "Host", "Member", "Instance", "Epoch", "Subscribes to", "Partitions")
    partition_columns = (
        "Topic", "Partition", "Committed", "High watermark", "Lag", "Member", "Leader epoch", "Metadata",
    )  # fmt: skip
    partitions = [_partition(each) for each in rows_of_page(group.partitions, page)]
    members = [_member(each) for each in rows_of_page(group.members, page)]
    return joined(
        [
            element("p", *about),
            said,
            steps,
            None
            if group.partitions and not partitions
            else section(
                f"Partitions: {count(len(group.partitions))}",
                table(
                    partition_columns,
                    partitions,
                    empty="It has no committed offsets and no assigned partitions.",
                ),
                id_="sl-lag",
            ),
            None
            if group.members and not members
            else section(
                f"Members: {count(len(group.members))}",
                table(member_columns, members, empty="It has none."),
                id_="sl-members",
            ),
            steps,
        ]
    )


def unknown_group_page(said: Html | None, group_id: str) -> Html:
    return joined([element("p", _ways(), element("strong", named(group_id))), said])


def _ways() -> Html:
    return joined(
        [link_to(log_page(), "Overview"), " \N{MIDDLE DOT} ", link_to(log_page("groups"), "Groups"), " "]
    )


def _summary(group: GroupSummary) -> list[Cell]:
    protocol = ", ".join(filter(None, (group.protocol_type, group.assignor)))
    return [
        plain(_link(group.group_id)),
        plain(_state(group.state)),
        plain(group.group_type),
        plain(protocol),
        right(group.coordinator),
        right(count(group.members)),
        right(count(group.partitions)),
        right(count(group.lag)),
    ]


def _link(group_id: str) -> Content:
    return (
        link_to(log_page("group", name=group_id), named(group_id)) if is_linked(group_id) else named(group_id)
    )


def _state(state: str) -> Html:
    colour = (
        "text-bg-warning"
        if is_moving(state)
        else "text-bg-success"
        if state == "Stable"
        else "text-bg-secondary"
    )
    return element("span", state, class_=f"badge {colour}")


def _member(member: GroupMember) -> list[Cell]:
    return [
        plain(member.client_id),
        plain(member.client_host),
        plain(element("code", member.member_id)),
        plain(member.group_instance_id),
        right(count(member.member_epoch)),
        plain(shortened(member.subscription)),
        plain(_assigned(member)),
    ]


def _assigned(member: GroupMember) -> str:
    if member.assignment is None:
        return "not a consumer's"
    shown = ", ".join(map(str, member.assignment[:_SHOWN_PARTITIONS]))
    more = len(member.assignment) - _SHOWN_PARTITIONS
    return f"{shown} and {count(more)} more" if more > 0 else shown


def _partition(each: GroupPartition) -> list[Cell]:
    return [
        plain(link_to(log_page("topic", name=each.topic), each.topic)),
        right(each.partition),
        right(count(each.committed_offset)),
        right(count(each.high_watermark)),
        right(count(each.lag)),
        plain(element("code", each.member_id) if each.member_id is not None else None),
        right(count(each.leader_epoch)),
        plain(shortened(each.metadata)),
    ]
