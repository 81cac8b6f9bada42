"""A cluster whose brokers do not come up: what its start says, and when."""

import pytest

from driver.application import start
from sparklog.hosting import BrokerRefusedError
from tests.unit.driver.applications import REFUSAL, Application, refused


def test_start_whose_brokers_are_all_refused_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """The reason and its remedy were taken for a user's stop, when all were refused within one look."""
    with pytest.raises(BrokerRefusedError, match=f"broker 0 of rack-0: {REFUSAL}"):
        start(Application(refused).context, racks=1)
    assert "application ended" not in caplog.text
