"""The tab's pages, as the controller's process makes them."""

import json
from pathlib import Path

import pytest

from sparklog.driver.controller.server import ControllerServer
from sparklog.driver.ui.tab_pages import TabMaker
from sparklog.node.config import BrokerConfig
from tests.application_secret import SECRET


def test_page_that_cannot_be_made_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A browser that asked for one broken page filled the log with its traceback."""
    config = BrokerConfig.from_mapping({"controller.quorum.bootstrap.servers": "127.0.0.1:1"})
    controller = ControllerServer(config, tmp_path, secret=SECRET, expected_brokers=(), new_cluster_id="c")
    maker = TabMaker(config, controller)
    for _ in range(2):
        page = maker.made_page("no-such-page\n\n\n")
        assert "could not be made" in page.html
        assert "no-such-page" in json.loads(page.json)["failure"]
    assert "There are no topics" in maker.made_page("topics\n\n\n").html
    # With one traceback, not with one for each time that somebody's browser asks.
    assert [record.message for record in caplog.records if record.exc_info] == [
        "The Log tab can't make a page ('no-such-page')"
    ]
