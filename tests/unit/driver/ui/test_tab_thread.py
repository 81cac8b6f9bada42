"""The tab's thread: what fails once must not end it."""

import json
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from driver.controller.server import ControllerServer
from driver.ui import tab_thread
from driver.ui.tab_thread import TabThread
from sparklog.config import BrokerConfig
from tests.cluster import wait_for
from tests.inside import SECRET
from tests.unit.driver.spark.java_virtual_machine import context_of


def test_page_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One topic whose page cannot be made would leave every page old until the application ends."""
    monkeypatch.setattr(tab_thread, "RETRY_S", 0.001)
    java = java_tab()
    failures = [
        Py4JError("An error occurred while calling o1.put. Trace:\nIllegalStateException"),
        ValueError("a figure that is none"),
    ]
    java.put.side_effect = lambda *_: failures and (_ for _ in ()).throw(failures.pop(0))
    java.next.side_effect = lambda _: time.sleep(0.001)
    tab = tab_of(java, tmp_path)
    tab.start()
    wait_for(lambda: java.put.call_count > 3, "the overview after the failures")
    tab.stop()
    assert not failures


def test_page_that_cannot_be_made_says_so_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who looked at one broken page had nobody see any other for five seconds, and again and again."""
    monkeypatch.setattr(tab_thread, "RETRY_S", 60.0)  # longer than is waited here
    java = java_tab()
    asked = ["no-such-page\n\n\n", "no-such-page\n\n\n", "topics\n\n\n"]
    put: dict[str, tuple[str, str]] = {}
    java.put.side_effect = lambda key, html, json: put.update({key: (html, json)})
    java.next.side_effect = lambda _: asked.pop(0) if asked else time.sleep(0.001)
    tab = tab_of(java, tmp_path)
    tab.start()
    wait_for(lambda: "topics\n\n\n" in put, "the page that can be made")
    tab.stop()
    html, told = put["no-such-page\n\n\n"]
    assert "could not be made" in html
    assert "no-such-page" in json.loads(told)["failure"]
    # With one traceback, not with one for each time that somebody's browser asks.
    assert [record.message for record in caplog.records if record.exc_info] == [
        "The Log tab can't make a page ('no-such-page')"
    ]


def java_tab() -> MagicMock:
    """Return a JVM's objects, to which anything may be put."""
    java = MagicMock()
    java.read.return_value = None
    return java


def tab_of(java: MagicMock, directory: Path) -> TabThread:
    """Return the tab of a cluster without brokers."""
    config = BrokerConfig.from_mapping({"controller.quorum.bootstrap.servers": "127.0.0.1:1"})
    controller = ControllerServer(config, directory, secret=SECRET, expected_brokers=(), new_cluster_id="c")
    return TabThread(context_of(java), config, controller, ())
