"""docs/monitoring.md, the board and the alarms name the metrics that there are, all of them and no others."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.driver.monitoring.exposition import family_name
from sparklog.node.metrics.catalogue import CATALOGUE
from sparklog.node.metrics.names import Kind
from tests.unit.docs.pages import REPOSITORY

PAGE = REPOSITORY / "docs" / "monitoring.md"
ALERTS = REPOSITORY / "conf" / "alerts.yml"
BOARD = REPOSITORY / "conf" / "grafana-dashboard.json"
ROW = re.compile(r"^\| `((?:kafka|org.apache.kafka|sparklog)[^`]*)` \| ([^|]+) \|", re.MULTILINE)
SERIES = re.compile(r"\b(?:kafka|sparklog)_[a-z0-9_]+")


def expressions(value: Any) -> Iterator[str]:
    """Yield whatever a board asks Prometheus for."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("expr", "query") and isinstance(each, str):
                yield each
            else:
                yield from expressions(each)
    elif isinstance(value, list):
        for each in value:
            yield from expressions(each)


def test_alarms_tell_clusters_apart() -> None:
    """One Prometheus may watch several: each is to have its own controller, and its name in what is told."""
    rules = re.findall(r"expr: (.*)", ALERTS.read_text())
    assert rules
    for rule in rules:
        (aggregation,) = re.findall(r"\b(?:sum|min|max|avg)\b(.{14})", rule)
        assert re.match(r" by \(instance[,)]", aggregation), rule


def test_page_and_registry_name_the_same_metrics() -> None:
    """Who is woken by a metric must find what it means and what to do."""
    rows = Counter(name for name, _ in ROW.findall(PAGE.read_text()))
    assert rows == Counter(str(metric) for metric in CATALOGUE)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param("\n".join(expressions(json.loads(BOARD.read_text()))), id="board"),
        pytest.param("\n".join(re.findall(r"expr: (.*)", ALERTS.read_text())), id="alerts"),
        pytest.param(PAGE.read_text(), id="page"),
    ],
)
def test_what_is_asked_of_prometheus_is_told_to_it(asked: str) -> None:
    """A renamed metric would leave a panel empty, and an alarm silent for ever."""
    told = {family_name(metric) for metric in CATALOGUE}
    told |= {
        f"{family_name(metric)}_{part}"
        for metric in CATALOGUE
        if metric.kind is Kind.HISTOGRAM
        for part in ("sum", "count")
    }
    named = set(SERIES.findall(asked))
    assert named
    assert named <= told
