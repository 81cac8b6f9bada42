"""The terminal's overview of the Log tab's data: troubles are there, however many topics there are."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from rich.console import Console

from sparklog.driver.ui.machine.groups import GroupSummary
from sparklog.driver.ui.machine.status import Status, TieredTopic, TierStatus, as_json
from sparklog.jobs.top.__main__ import main
from sparklog.jobs.top.screen import screen
from tests.unit.driver.ui.pages.statuses import STATUS

GROUPS = tuple(
    GroupSummary(
        group_id=f"[red]group-{number}",
        group_type="classic",
        state="Empty",
        protocol_type="consumer",
        assignor=None,
        coordinator=2,
        members=None,
        partitions=6,
        lag=12_345,
    )
    for number in range(50)
)
MANY = replace(STATUS, topics=STATUS.topics * 20, topic_count=1_000)
TIERED = TieredTopic(
    name="tiered",
    local_bytes=1,
    tiered_bytes=5 << 20,
    copy_lag_bytes=3 << 10,
    copy_lag_records=7,
    copy_lag_ms=2_500,
    reads_per_s=2.5,
)


def shown(
    status: Status, groups: tuple[GroupSummary, ...] = (), *, width: int = 140, height: int = 24
) -> list[str]:
    console = Console(width=width, height=height, record=True, file=None, force_terminal=False)
    listed = {"group_count": 1_234 if groups else 0, "groups": groups}
    with console.capture() as capture:
        console.print(screen(as_json(status), as_json(listed), height))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_screen_says_what_is_wrong_before_anything_else() -> None:
    """It is opened when something is."""
    lines = shown(STATUS)
    assert lines[:2] == [
        "Cluster AAAAAAAAAAAAAAAAAAAAAA  controller 1000000  epoch 3  voters' lag: 0 0, 1 –",
        "12 partitions of 1 topics: 1 offline 1 under replicated",
    ]
    assert lines[3].split()[:6] == ["0", "in", "service", "rack-0", "127.0.0.1:9092", "4/12/12"]
    assert lines[4].split()[:3] == ["1", "fenced", "rack-1"]
    assert lines[7].split() == ["flights-0", "–", "1,", "0,", "2", "1"]
    assert lines[8] == "and 1 more"
    assert "Nothing can be decided: 2 of 3 voters" in shown(replace(STATUS, missing="2 of 3 voters"))


def test_screen_is_no_taller_than_the_terminal() -> None:
    """What scrolls off at the top is what matters most."""
    lines = shown(MANY)
    assert len(lines) <= 24
    assert lines[-1].startswith("and 99")


def test_groups_that_are_furthest_behind_are_shown_and_the_others_counted() -> None:
    """Lag is what somebody looks for; the list of topics gives way."""
    lines = shown(MANY, GROUPS, height=40)
    (first,) = (number for number, line in enumerate(lines) if line.startswith("Group "))
    assert lines[first + 1].split() == ["[red]group-0", "Empty", "2", "6", "12,345"]
    assert lines[first + 6] == "and 1,229 more"
    assert len(lines) <= 40


def test_names_that_a_terminal_would_obey_are_shown_as_what_they_are() -> None:
    """A client that commits an offset chooses the name of a group, and could clear the screen."""
    odd = replace(GROUPS[0], group_id="a\x1b[2Jb\r\nc")
    lines = shown(replace(STATUS, brokers=(replace(STATUS.brokers[0], rack="[/bold]"),)), (odd,))
    assert any(line.startswith(r"a\x1b[2Jb\r\nc ") for line in lines)
    assert any("[/bold]" in line for line in lines)
    assert all(line.isprintable() for line in lines)


def test_topics_of_a_tiered_cluster_have_the_lag_of_their_copies() -> None:
    """What is not in the tier is what the loss of all disks would cost."""
    tier = TierStatus(
        tiered_bytes=9, partitions_awaiting_manifest=0, topic_count=1, topics=(TIERED,), errors=()
    )
    (row,) = (line for line in shown(replace(STATUS, tier=tier)) if line.startswith("tiered"))
    assert row.split()[1:] == ["5.0", "MiB", "3.0", "KiB", "2.5", "s", "2.5/s"]
    assert not any("tier" in line for line in shown(STATUS))


@contextmanager
def a_tab(pages: dict[str, Any]) -> Iterator[str]:
    class Tab(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = pages.get(self.path)
            self.send_response(503 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            """Leave the test's output alone."""

    with HTTPServer(("127.0.0.1", 0), Tab) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_once_prints_the_overview_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts, and for a look by ssh."""
    pages = {"/log/json/": as_json(STATUS), "/log/groups/json/": {"group_count": 0, "groups": []}}
    with a_tab(pages) as url:
        assert main(["--once", f"{url}/"]) == 0
    assert capsys.readouterr().out.startswith(f"Cluster {STATUS.cluster_id} ")


@pytest.mark.parametrize(
    "pages",
    [{}, {"/log/json/": 1}, {"/log/json/": {"failure": "x"}}, {"/log/json/": {}}],
    ids=["not yet", "another page", "failed", "no groups"],
)
def test_address_without_a_tab_is_one_line(pages: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A stack trace says nothing to an operator who has mistyped a port."""
    with a_tab(pages) as url:
        assert main([url]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith(f"{url}/log/")
    assert main(["driver:9092"]) == 1
    assert capsys.readouterr().err == (
        "driver:9092: the address of a Spark UI begins with http:// or https://\n"
    )
