"""The tab's thread: what fails once must not end it."""

import time
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from sparklog.driver.ui import log_tab, tab_thread
from sparklog.driver.ui.tab_source import MadePage, MadeTab, Observed
from sparklog.driver.ui.tab_thread import TabThread
from tests.cluster import wait_for
from tests.unit.driver.spark.java_virtual_machine import context_of


def test_page_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One topic whose page cannot be made would leave every page old until the application ends."""
    monkeypatch.setattr(tab_thread, "RETRY_S", 0.001)
    java = java_tab()
    failures = [
        Py4JError("An error occurred while calling o1.put. Trace:\nIllegalStateException"),
        ValueError("a figure that is none"),
    ]
    java.put.side_effect = lambda *_: failures and (_ for _ in ()).throw(failures.pop(0))
    java.next.side_effect = lambda _: time.sleep(0.001)
    tab = tab_of(java)
    tab.start()
    wait_for(lambda: java.put.call_count > 3, "the overview after the failures")
    tab.stop()
    assert not failures


def test_page_that_is_not_made_in_time_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the controller's process is started again, the tab only gets old."""
    monkeypatch.setattr(tab_thread, "RETRY_S", 60.0)  # longer than is waited here
    java = java_tab()
    asked = ["topics\n\n\n"]
    put: list[str] = []
    java.put.side_effect = lambda key, html, json: put.append(key)
    java.next.side_effect = lambda _: asked.pop(0) if asked else time.sleep(0.001)
    monkeypatch.setattr(log_tab, "REFRESH_S", 0.001)
    tab = tab_of(java)
    tab.start()
    wait_for(lambda: not asked and len(put) > 3, "the overview after the page")
    tab.stop()
    assert set(put) == {""}


def java_tab() -> MagicMock:
    """Return a JVM's objects, to which anything may be put."""
    java = MagicMock()
    java.read.return_value = None
    return java


class Source:
    """The process, which makes a tab of nothing at all."""

    def begin_tab(self) -> None:
        """Nothing happens."""

    def made_tab(self, observed: Observed) -> MadeTab:
        """Return an overview."""
        return MadeTab(MadePage("overview", "{}"), ())

    def made_page(self, key: str) -> MadePage | None:
        """Return no page in time."""
        return None


def tab_of(java: MagicMock) -> TabThread:
    """Return the tab of a cluster without brokers."""
    return TabThread(context_of(java), Source(), ())
