"""Partitions in trouble, and their number by kind."""

from sparklog.driver.ui.machine.status import PartitionsStatus, PartitionTrouble, Trouble
from sparklog.driver.ui.pages.html import Content, Html, element, link_to, log_page
from sparklog.driver.ui.pages.number_formats import count
from sparklog.driver.ui.pages.sections.section import Section, Shown
from sparklog.driver.ui.pages.tables import Cell, numbers, plain, right, section, table

_MAX_SHOWN = 20
"""Few enough to leave the brokers visible."""
_COLOURS = {
    Trouble.OFFLINE: "text-bg-danger",
    Trouble.UNDER_MIN_ISR: "text-bg-danger",
    Trouble.UNDER_REPLICATED: "text-bg-warning",
}


def trouble_badge(trouble: Trouble | None) -> Html | None:
    """Return the word for it in its colour; None without trouble."""
    return None if trouble is None else element("span", trouble, class_=f"badge {_COLOURS[trouble]}")


def _shows(shown: Shown) -> tuple[PartitionsStatus, int, str | None]:
    return shown.status.partitions, shown.status.topic_count, shown.status.missing


def _render(shows: tuple[PartitionsStatus, int, str | None]) -> Html:
    partitions, topic_count, missing = shows
    parts: list[Content] = []
    if missing is not None:
        parts.append(element("div", f"Nothing can be decided: {missing}", class_="alert alert-danger"))
    parts.append(
        element(
            "p",
            f"{count(partitions.count)} partitions of {count(topic_count)} topics: ",
            *_counted(partitions),
        )
    )
    if partitions.troubled:
        parts.append(
            table(
                ("Partition", "", "Leader", "Replicas", "In sync", "Eligible"),
                [_row(each) for each in partitions.troubled[:_MAX_SHOWN]],
                empty="",
            )
        )
        hidden = partitions.offline + partitions.under_min_isr + partitions.under_replicated
        hidden -= min(_MAX_SHOWN, len(partitions.troubled))
        if hidden:
            parts.append(element("p", f"and {count(hidden)} more; the topics' pages have them all"))
    return section("Partitions", *parts, id_="sl-partitions")


def _counted(partitions: PartitionsStatus) -> list[Content]:
    counted = (
        (Trouble.OFFLINE, partitions.offline),
        (Trouble.UNDER_MIN_ISR, partitions.under_min_isr),
        (Trouble.UNDER_REPLICATED, partitions.under_replicated),
    )
    badges: list[Content] = []
    for trouble, number in counted:
        if number:
            badges += [
                element("span", f"{count(number)} {trouble}", class_=f"badge {_COLOURS[trouble]}"),
                " ",
            ]
    return badges or [element("span", "all in sync", class_="badge text-bg-success")]


def _row(each: PartitionTrouble) -> list[Cell]:
    return [
        plain(link_to(log_page("topic", name=each.topic), f"{each.topic}-{each.partition}")),
        plain(trouble_badge(each.trouble)),
        right("none" if each.leader is None else each.leader),
        plain(numbers(each.replicas)),
        plain(numbers(each.isr)),
        plain(numbers(each.eligible)),
    ]


PARTITIONS = Section(_shows, _render)
