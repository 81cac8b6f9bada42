"""A topic: its partitions, a page at a time, and its settings."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparklog.driver.controller.tables.machine.table_status import TableStatus
from sparklog.driver.ui.machine.topic_health import trouble_of
from sparklog.driver.ui.machine.topic_settings import Setting
from sparklog.driver.ui.pages.html import Content, Html, element, joined, link_to, log_page
from sparklog.driver.ui.pages.number_formats import count, rate, size
from sparklog.driver.ui.pages.sections.partitions import trouble_badge
from sparklog.driver.ui.pages.tables import (
    PAGE_ROWS,
    Cell,
    numbers,
    pages_of,
    paging,
    plain,
    right,
    section,
    table,
)
from sparklog.node.metadata.image import PartitionRegistration, TopicImage
from sparklog.protocol.types import Offset

_COLUMNS = (
    "Partition", "", "Leader", "Epoch", "Replicas", "In sync", "Eligible (ELR)", "Last known ELR",
    "First offset", "High watermark", "Size", "Records in", "",
)  # fmt: skip


class PartitionMetrics(NamedTuple):
    """The partition leader's answer; None for unknown values."""

    log_start_offset: Offset | None = None
    high_watermark: Offset | None = None
    size_bytes: int | None = None
    records_in_per_s: float | None = None


def partitions_of_page(topic: TopicImage, page: int) -> list[int]:
    page = min(max(1, page), pages_of(len(topic.partitions)))
    return sorted(topic.partitions)[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]


def topic_page(
    topic: TopicImage,
    page: int,
    *,
    min_insync_replicas: int,
    metrics: Mapping[int, PartitionMetrics],
    settings: Sequence[Setting],
    remark: str | None,
    iceberg: TableStatus | None = None,
) -> Html:
    """Return page number `page` of a topic, or the nearest one; `remark` is shown above the table.

    `iceberg` is the table that the topic is, if it is one.
    """
    pages = pages_of(len(topic.partitions))
    page = min(max(1, page), pages)
    steps = paging(lambda number: log_page("topic", name=topic.name, page=number), page, pages)
    nothing = PartitionMetrics()
    rows = [
        _row(topic.name, number, topic.partitions[number], min_insync_replicas, metrics.get(number, nothing))
        for number in partitions_of_page(topic, page)
    ]
    return joined(
        [
            element(
                "p",
                link_to(log_page(), "Overview"),
                f" \N{MIDDLE DOT} {count(len(topic.partitions))} partitions \N{MIDDLE DOT} topic id ",
                element("code", str(topic.topic_id)),
            ),
            None if iceberg is None else _iceberg(iceberg),
            None if remark is None else element("p", remark, class_="text-secondary"),
            steps,
            table(_COLUMNS, rows, empty="It has no partitions."),
            steps,
            section("Settings", _settings(settings), id_="sl-settings"),
        ]
    )


def _iceberg(status: TableStatus) -> Html:
    state = "no snapshot yet" if status.snapshot_id is None else f"snapshot {status.snapshot_id}"
    line = element(
        "p",
        "Iceberg table ",
        element("code", status.name),
        f" \N{MIDDLE DOT} {state} \N{MIDDLE DOT} {count(status.lag)} offsets to commit",
    )
    held = [element("p", str(each), class_="text-secondary") for each in status.held]
    problem = None if status.problem is None else element("p", status.problem, class_="text-danger")
    return joined([line, *held, problem])


def unknown_topic_page(name: str) -> Html:
    return element(
        "p", f"There is no topic {name!r}. ", link_to(log_page("topics", page=1), "All topics"), class_="lead"
    )


def _row(
    topic: str,
    number: int,
    partition: PartitionRegistration,
    min_insync_replicas: int,
    metrics: PartitionMetrics,
) -> list[Cell]:
    producers = log_page("producers", name=topic, partition=number)
    return [
        right(number),
        plain(trouble_badge(trouble_of(partition, min_insync_replicas))),
        right("none" if partition.leader is None else partition.leader),
        right(partition.leader_epoch),
        plain(_replicas(partition)),
        plain(numbers(partition.isr)),
        plain(numbers(partition.elr)),
        plain(numbers(partition.last_known_elr)),
        right(count(metrics.log_start_offset)),
        right(count(metrics.high_watermark)),
        right(size(metrics.size_bytes)),
        right(rate(metrics.records_in_per_s)),
        plain(link_to(producers, "producers")),
    ]


def _replicas(partition: PartitionRegistration) -> Content:
    changes = [
        f"{word} {numbers(brokers)}"
        for word, brokers in (
            ("adding", partition.adding_replicas),
            ("removing", partition.removing_replicas),
        )
        if brokers
    ]
    return numbers(partition.replicas) + (f" ({'; '.join(changes)})" if changes else "")


def _settings(settings: Sequence[Setting]) -> Html:
    rows = [
        [plain(element("code", each.name)), plain(each.value), plain("topic" if each.is_own else "")]
        for each in settings
    ]
    return table(("Key", "Value", "Set by"), rows, empty="There are none.")
