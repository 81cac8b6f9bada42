"""Transactions that have not ended, and a partition's producers, with commands that end them."""

from collections.abc import Sequence
from typing import Final

from sparklog.driver.ui.machine.transactions import ProducerRow, TransactionRemark, TransactionStatus
from sparklog.driver.ui.pages.html import Content, Html, element, joined, link_to, log_page
from sparklog.driver.ui.pages.number_formats import clock_time, count, duration
from sparklog.driver.ui.pages.tables import (
    Cell,
    named,
    pages_of,
    paging,
    plain,
    right,
    rows_of_page,
    section,
    table,
)
from sparklog.protocol.types import TopicPartition
from sparklog.user.sink.machine.names import SinkId, sink_of

_SHOWN_PARTITIONS: Final = 10
_COLOURS = {
    TransactionRemark.OVERDUE: "text-bg-danger",
    TransactionRemark.STUCK: "text-bg-danger",
    TransactionRemark.UNDECIDED: "text-bg-warning",
    TransactionRemark.LONG: "text-bg-warning",
}
_TOOL: Final = "kafka-transactions.sh --bootstrap-server"
_SINKS: Final = "sparklog-sinks"


def transactions_page(
    said: Html | None,
    transactions: Sequence[TransactionStatus],
    page: int,
    *,
    open_for_ms: int | None,
    bootstrap_servers: str,
) -> Html:
    """Return a page of transactions, which may be only those open for a given time."""
    pages = pages_of(len(transactions))
    page = min(max(1, page), pages)
    steps = paging(lambda number: log_page("transactions", page=number), page, pages)
    columns = (
        "Transactional id", "State", "", "Open for", "Time-out", "Producer id", "Epoch", "Coordinator",
        "Partitions without a marker",
    )  # fmt: skip
    shown = rows_of_page(transactions, page)
    which = (
        ""
        if open_for_ms is None
        else f" for longer than {duration(open_for_ms)}, of too many to be shown all"
    )
    return joined(
        [
            element(
                "p",
                link_to(log_page(), "Overview"),
                f" \N{MIDDLE DOT} Open transactions{which}: {count(len(transactions))}; the oldest first",
            ),
            said,
            steps,
            table(
                columns,
                [_transaction(each) for each in shown],
                empty="No transaction is open.",
            ),
            steps,
            section("How to end them", _ends(shown, bootstrap_servers), id_="sl-ends"),
        ]
    )


def producers_page(
    said: Html | None,
    topic_partition: TopicPartition,
    producers: Sequence[ProducerRow],
    page: int,
    *,
    bootstrap_servers: str,
) -> Html:
    """Return page number `page` of a partition's producers, or the nearest one."""
    topic, partition = topic_partition
    pages = pages_of(len(producers))
    page = min(max(1, page), pages)
    steps = paging(
        lambda number: log_page("producers", name=topic, partition=partition, page=number), page, pages
    )
    columns = (
        "Producer id", "Epoch", "Transaction since offset", "", "Transactional id", "State",
        "Last append (UTC)", "Last sequence", "Coordinator epoch",
    )  # fmt: skip
    hanging = [each for each in producers if each.is_hanging]
    return joined(
        [
            element(
                "p",
                link_to(log_page(), "Overview"),
                " \N{MIDDLE DOT} ",
                link_to(log_page("topic", name=topic), topic),
                f" partition {partition} \N{MIDDLE DOT} Producers: {count(len(producers))}; those with an "
                "open transaction come first",
            ),
            said,
            steps,
            table(
                columns,
                [_producer(each) for each in rows_of_page(producers, page)],
                empty="Its leader remembers no producer.",
            ),
            steps,
            section(
                "How to end hanging transactions",
                _aborts(topic_partition, hanging, bootstrap_servers),
                id_="sl-ends",
            )
            if hanging
            else None,
        ]
    )


def _transaction(each: TransactionStatus) -> list[Cell]:
    started = None if each.started_ms is None else f"since {clock_time(each.started_ms)} UTC"
    return [
        plain(named(each.transactional_id)),
        plain(each.state),
        plain(None if each.remark is None else _badge(each.remark, _COLOURS[each.remark])),
        right(element("span", duration(each.age_ms), title=started)),
        right("none" if each.timeout_ms is None else duration(each.timeout_ms)),
        right(each.producer_id),
        right(each.producer_epoch),
        right(each.coordinator),
        plain(_partitions(each.partitions)),
    ]


def _partitions(partitions: Sequence[TopicPartition]) -> Html:
    shown: list[Content] = []
    for each in partitions[:_SHOWN_PARTITIONS]:
        page = log_page("producers", name=each.topic, partition=each.partition)
        shown += [", " if shown else None, link_to(page, str(each))]
    more = len(partitions) - _SHOWN_PARTITIONS
    return joined([*shown, f" and {count(more)} more" if more > 0 else None])


def _producer(each: ProducerRow) -> list[Cell]:
    last_ms = each.last_timestamp_ms
    return [
        right(each.producer_id),
        right(each.producer_epoch),
        right(count(each.transaction_start_offset)),
        plain(_badge("hanging", "text-bg-danger") if each.is_hanging else None),
        plain(None if each.transactional_id is None else named(each.transactional_id)),
        plain(each.state),
        right(count(None) if last_ms is None else clock_time(last_ms)),
        right(count(each.last_sequence)),
        right(count(each.coordinator_epoch)),
    ]


def _badge(text: str, colour: str) -> Html:
    return element("span", text, class_=f"badge {colour}")


def _ends(shown: Sequence[TransactionStatus], bootstrap_servers: str) -> Html:
    command = f"{_TOOL} {bootstrap_servers} forceTerminateTransaction --transactionalId ID"
    sinks = dict.fromkeys(sink for each in shown if (sink := _sink(each.transactional_id)) is not None)
    return joined(
        [
            element(
                "p",
                "Its producer commits or aborts a transaction; the next producer of its transactional id "
                "aborts it, and so does its coordinator when its time-out is over. One that waits for a "
                "decision has no time-out: the query that left it ends it when it runs again.",
            ),
            *_settles(list(sinks), bootstrap_servers),
            element("p", "Any other whose producer never comes back is aborted by this:"),
            element("pre", command),
            element(
                "p",
                "One that is decided ends when each of its partitions has its marker; those that are named "
                "have not. docs/transactions.md says more.",
            ),
        ]
    )


def _settles(sinks: Sequence[str], bootstrap_servers: str) -> list[Html]:
    """Return the command for prepared transactions of sinks: decided rows must not be aborted."""
    if not sinks:
        return []
    lines = [f"{_SINKS} {bootstrap_servers} --end {sink}" for sink in sinks]
    return [
        element(
            "p",
            "Of a query or job that writes exactly once and never runs again this commits what was decided, "
            "and aborts the rest. Ended in another way, rows that count may be lost:",
        ),
        element("pre", "\n".join(lines)),
    ]


def _sink(transactional_id: str) -> str | None:
    """Return the sink of a transactional id, if the id has a sink's form: it becomes part of a command."""
    text = sink_of(transactional_id)
    try:
        return None if text is None else SinkId.parse(text).text
    except ValueError:
        return None


def _aborts(topic_partition: TopicPartition, hanging: Sequence[ProducerRow], bootstrap_servers: str) -> Html:
    topic, partition = topic_partition
    lines = [
        f"{_TOOL} {bootstrap_servers} abort --topic {topic} --partition {partition} "
        f"--start-offset {each.transaction_start_offset}"
        for each in hanging
    ]
    return joined(
        [
            element("p", "No coordinator knows of these transactions, so that none will ever end them:"),
            element("pre", "\n".join(lines)),
        ]
    )
