"""The documentation says what is so: its code runs, its names exist, its links lead somewhere."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparklog.node.config.broker import BROKER_KEYS
from sparklog.node.config.keys.ignored_broker_keys import IGNORED_DYNAMIC_KEYS
from sparklog.node.config.keys.ignored_group_keys import IGNORED_GROUP_KEYS
from sparklog.node.config.topic import TOPIC_KEYS
from tests.unit.docs.pages import (
    PAGES,
    REPOSITORY,
    blocks,
    code_spans,
    definitions,
    needs_spark,
    prose,
    run,
)

JOURNEY = REPOSITORY / "docs" / "journey.md"
CONFIGURATION = REPOSITORY / "docs" / "configuration.md"
PACKAGES = ("sparklog", "driver", "executor", "jobs")
PURE_PAGES = [page for page in PAGES if blocks(page) and not needs_spark(page)]
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def page_names(page: Path) -> str:
    return page.name


def repository_modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (REPOSITORY / package).rglob("*.py")


@cache
def every_definition() -> frozenset[str]:
    """Return what is defined anywhere; to read all modules takes a second."""
    return frozenset(name for path in repository_modules() for name in definitions(path))


@pytest.mark.parametrize("page", PURE_PAGES, ids=page_names)
def test_page_without_a_cluster_runs_from_top_to_bottom(page: Path) -> None:
    """A reader pastes the blocks one after the other."""
    namespace: dict[str, Any] = {}
    for block in blocks(page):
        run(block, namespace)


@pytest.mark.parametrize("page", PAGES, ids=page_names)
def test_page_names_files_that_exist(page: Path) -> None:
    """A page that sends its reader to a file that was renamed is worse than none."""
    named = {
        span
        for span in code_spans(prose(page))
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)+\.(py|md|sh|properties|conf|toml|svg)", span)
    }
    assert [path for path in sorted(named) if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_names)
def test_page_links_lead_somewhere(page: Path) -> None:
    """Links inside the repository are relative to the page."""
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose(page))
    inside = [link for link in links if "://" not in link]
    assert [link for link in inside if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_names)
def test_page_names_classes_that_exist(page: Path) -> None:
    """`Class.member` is taken for one of ours: it must be defined in some module."""
    named = {
        span.removesuffix("()")
        for span in code_spans(prose(page))
        if re.fullmatch(r"[A-Z]\w*[a-z]\w*\.\w+(\(\))?", span)
    }
    assert sorted(named - every_definition()) == []


def test_journey_names_what_is_defined_in_the_file_of_its_step() -> None:
    """Each name after a path is defined in that file, so that a step can be found by reading the file."""
    wrong = []
    for paragraph in re.split(r"\n\n|\n(?=\d+\. )", prose(JOURNEY)):
        spans = list(code_spans(paragraph))
        for path, name in pairwise(spans):
            if not path.endswith(".py") or not NAME.fullmatch(name) or name.endswith(".py"):
                continue
            if name not in definitions(REPOSITORY / path):
                wrong.append(f"{path} does not define {name}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=page_names)
def test_page_names_kafka_keys_that_are_honoured(page: Path) -> None:
    """A key in backticks that begins like one of ours is one of ours, letter for letter."""
    known = {*BROKER_KEYS, *TOPIC_KEYS, *IGNORED_DYNAMIC_KEYS}
    beginnings = ("broker.", "controller.", "log.", "metadata.", "num.", "replica.", "socket.", "min.insync")
    named = {
        span.partition("=")[0]
        for span in code_spans(prose(page))
        if span.startswith(beginnings) and re.fullmatch(r"[a-z]+(\.[a-z]+)+(=.*)?", span)
    }
    assert sorted(named - known) == []


def test_configuration_page_gives_the_defaults_there_are() -> None:
    """The table of differing defaults is read by whoever moves a configuration over."""
    rows = re.findall(r"^\| (`[^|]+) \| [^|]+ \| `([^|`]+)` \|", prose(CONFIGURATION), re.MULTILINE)
    told = {key: default for keys, default in rows for key in code_spans(keys)}
    assert len(told) >= 7
    assert {key: BROKER_KEYS[key].format(BROKER_KEYS[key].default) for key in told} == told


_THREADS_OF_STARTS = {"background.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir"}


def test_configuration_page_lists_every_key_without_an_effect() -> None:
    """A key that is accepted and does nothing must not look as if it did."""
    section, _, at_run_time = (
        prose(CONFIGURATION)
        .partition("## What is kept without an effect")[2]
        .partition("### Told to running brokers")
    )
    listed = {span for span in code_spans(section) if span in TOPIC_KEYS}
    stored = {name for name, key in TOPIC_KEYS.items() if "without effect" in key.documentation}
    assert listed == stored
    of_groups = {span for span in code_spans(section) if span.startswith("group.")}
    assert of_groups <= {*IGNORED_GROUP_KEYS, "group.share.", "group.streams."}
    assert {name for name in IGNORED_GROUP_KEYS if not name.startswith(tuple(of_groups))} == set()
    told = {span for span in code_spans(at_run_time) if "." in span}
    assert told - _THREADS_OF_STARTS == set(IGNORED_DYNAMIC_KEYS)
