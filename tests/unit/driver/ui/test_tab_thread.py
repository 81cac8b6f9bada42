"""The tab's thread: what fails once must not end it."""

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
    java = MagicMock()
    java.read.return_value = None
    failures = [
        Py4JError("An error occurred while calling o1.put. Trace:\nIllegalStateException"),
        ValueError("a figure that is none"),
    ]
    java.put.side_effect = lambda *_: failures and (_ for _ in ()).throw(failures.pop(0))
    java.next.side_effect = lambda _: time.sleep(0.001)
    config = BrokerConfig.from_mapping({"controller.quorum.bootstrap.servers": "127.0.0.1:1"})
    controller = ControllerServer(config, tmp_path, secret=SECRET, expected_brokers=(), new_cluster_id="c")
    tab = TabThread(context_of(java), config, controller, ())
    tab.start()
    wait_for(lambda: java.put.call_count > 3, "the overview after the failures")
    tab.stop()
    assert not failures
