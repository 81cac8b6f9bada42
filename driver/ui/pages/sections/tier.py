"""The tier in the object store: topics by how far its copy is behind, and the errors by which it waits."""

from collections.abc import Mapping
from typing import Final

from sparklog.driver.ui.machine.status import TierErrorStatus, TierStatus
from sparklog.driver.ui.pages.html import Html, element, joined, link_to, log_page
from sparklog.driver.ui.pages.number_formats import count, duration, rate, size
from sparklog.driver.ui.pages.sections.section import Section, Shown
from sparklog.driver.ui.pages.tables import plain, right, section, table
from sparklog.node.metrics.remote_log import TierErrorKind

_REMEDIES: Final[Mapping[str, str]] = {
    TierErrorKind.REFUSED: "Give the application's credentials the permission that the error names.",
    TierErrorKind.UNAVAILABLE: "Brokers retry, and keep what is not copied; look at the way to the store.",
    TierErrorKind.REPLACED: "Stop this application: another one serves the cluster from the same store.",
    TierErrorKind.LOCAL: "Look at the broker's disk and its log.",
    TierErrorKind.OTHER: "The broker's log has the whole of it.",
}

_COLUMNS = (
    "Topic", "Local", "In the tier", "Not copied yet", "Records", "Oldest of them", "Reads of the tier",
)  # fmt: skip


def _shows(shown: Shown) -> TierStatus | None:
    return shown.status.tier


def _render(tier: TierStatus | None) -> Html | None:
    if tier is None:
        return None
    rows = [
        [
            plain(link_to(log_page("topic", name=topic.name), topic.name)),
            right(size(topic.local_bytes)),
            right(size(topic.tiered_bytes)),
            right(size(topic.copy_lag_bytes)),
            right(count(topic.copy_lag_records)),
            right(duration(topic.copy_lag_ms)),
            right(rate(topic.reads_per_s)),
        ]
        for topic in tier.topics
    ]
    waiting = tier.partitions_awaiting_manifest
    more = tier.topic_count - len(tier.topics)
    return section(
        "Tier",
        element("p", f"{size(tier.tiered_bytes)} in the object store."),
        None
        if not waiting
        else element(
            "p",
            f"{count(waiting)} partitions serve nothing: the store has not told where their logs begin.",
            class_="text-danger",
        ),
        None if not tier.errors else _errors(tier.errors),
        table(_COLUMNS, rows, empty="Nothing is tiered."),
        element("p", f"and {count(more)} topics more") if more > 0 else None,
        id_="sl-tier",
    )


def _errors(errors: tuple[TierErrorStatus, ...]) -> Html:
    rows = [
        [
            plain(f"{error.topic}-{error.partition}"),
            right(duration(error.for_ms)),
            plain(joined([error.error, element("br"), element("em", _REMEDIES.get(error.kind, ""))])),
        ]
        for error in errors
    ]
    return table(("Partition", "For", "Error, and what helps"), rows, empty="")


TIER = Section(_shows, _render)
