"""The overview: what stands first, what is escaped, what is not rendered twice."""

import json
from dataclasses import replace
from html.parser import HTMLParser

from sparklog.driver.ui.machine.chart_samples import chart_samples
from sparklog.driver.ui.machine.history import History
from sparklog.driver.ui.machine.status import (
    PartitionsStatus,
    TieredTopic,
    TierErrorStatus,
    TierStatus,
    as_json,
)
from sparklog.driver.ui.pages.overview import Overview
from sparklog.driver.ui.pages.sections import SECTIONS, Shown
from tests.unit.driver.ui.pages.statuses import EVIL, FIGURES, STATUS


def shown() -> Shown:
    history = History()
    history.sample(chart_samples(STATUS))
    return Shown(STATUS, history.charts)


class Elements(HTMLParser):
    """Finds out which elements a page has, and that each ends."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_overview_has_every_section_and_all_its_elements_end() -> None:
    """A section that is cut off would take the others along."""
    page = Elements(Overview().render(shown()))
    assert page.open == []
    for title in ("Partitions", "Brokers", "Bytes in", "Controller", "Topics", "Streaming queries", "events"):
        assert title in page.text
    assert page.tags.count("svg") == 9


def test_markup_in_names_and_reasons_is_text() -> None:
    """Whoever names a query or makes a broker fail does not thereby run a script in an operator's browser."""
    page = Elements(Overview().render(shown()))
    assert "img" not in page.tags
    assert "script" not in page.tags
    assert page.text.count(EVIL) == 5  # in the chart's legend, as name, source and sink, and as a reason


def test_partitions_in_trouble_stand_before_everything_else() -> None:
    """They are what somebody was called for."""
    page = Elements(Overview().render(shown()))
    assert page.text.startswith("Partitions12 partitions of 1 topics: 1 offline 1 under-replicated ")


def test_cluster_that_is_well_says_so_and_names_no_partition() -> None:
    """Nothing to do is an answer, too."""
    well = PartitionsStatus(count=12, offline=0, under_min_isr=0, under_replicated=0, troubled=())
    page = Elements(Overview().render(Shown(replace(STATUS, partitions=well, queries=()), {})))
    assert page.text.startswith("Partitions12 partitions of 1 topics: all in syncBrokers")
    assert "Streaming queries" not in page.text


def test_sections_that_are_the_same_are_not_rendered_again() -> None:
    """The page is made every second, and most of it stays what it was."""
    overview, first = Overview(), shown()
    overview.render(first)
    before = dict(overview._rendered)
    overview.render(first._replace(status=replace(STATUS, taken_ms=1, events=())))
    same = [before[section] is overview._rendered[section] for section in SECTIONS]
    assert same == [True] * (len(SECTIONS) - 1) + [False]


def test_status_as_json_is_what_the_page_shows() -> None:
    """Scripts and monitoring read it: names are the fields', enumerations are their words."""
    data = json.loads(json.dumps(as_json(STATUS)))
    assert data["brokers"][1]["state"] == "fenced"
    assert data["brokers"][0]["figures"]["requests"][0] == {
        "api": "Produce",
        "requests_per_s": 250.0,
        "p99_ms": 12.5,
        "throttle_ms_per_s": 0.0,
    }
    assert data["partitions"]["troubled"][0]["replicas"] == [1, 0, 2]
    assert data["queries"][0]["name"] == EVIL


def test_many_partitions_in_trouble_leave_room_for_the_brokers() -> None:
    """One dead broker of three is a third of all partitions, and the first thing to see is the broker."""
    (one,) = STATUS.partitions.troubled
    many = replace(STATUS.partitions, under_replicated=5_000, troubled=(one,) * 100)
    page = Overview().render(Shown(replace(STATUS, partitions=many), {}))
    section = page[page.index('id="sl-partitions"') : page.index('id="sl-brokers"')]
    assert section.count("<tr>") == 1 + 20
    assert "and 4,981 more" in section


def test_groups_of_all_brokers_are_counted_and_unknown_is_not_none() -> None:
    """Brokers count once a minute; before that nobody knows, and a dead broker's groups are another's."""
    counted = replace(FIGURES, groups=1_000, groups_moving=2)
    brokers = tuple(replace(each, figures=each.figures and counted) for each in STATUS.brokers)
    page = Elements(Overview().render(Shown(replace(STATUS, brokers=brokers), {})))
    assert (
        "Groups with their lag (2,000, 4 of them in between two assignments, as of the last minute)"
        in page.text
    )
    assert "Groups with their lag \N{MIDDLE DOT}" in Elements(Overview().render(shown())).text


def test_tier_shows_its_errors_with_remedies_and_is_left_out_of_clusters_without_one() -> None:
    """An operator who reads that copies stand still must read what to do, and others nothing of it."""
    topic = TieredTopic(
        name=EVIL,
        local_bytes=1 << 20,
        tiered_bytes=5 << 30,
        copy_lag_bytes=300,
        copy_lag_records=3,
        copy_lag_ms=1_500,
        reads_per_s=2.0,
    )
    error = TierErrorStatus(topic="t", partition=4, error=EVIL, kind="refused", for_ms=90_000)
    tier = TierStatus(
        tiered_bytes=5 << 30, partitions_awaiting_manifest=2, topic_count=21, topics=(topic,), errors=(error,)
    )
    status = replace(STATUS, tier=tier)
    page = Elements(Overview().render(shown()._replace(status=status)))
    assert page.open == []
    for text in ("5.0 GiB in the object store", "2 partitions serve nothing", "t-4", "1.5 min", "permission"):
        assert text in page.text
    assert "img" not in page.tags
    assert page.text.count(EVIL) == 7
    assert "sl-tier" not in Overview().render(shown())
