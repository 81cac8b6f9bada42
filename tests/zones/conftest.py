"""Four zones for a test, or a skip where they cannot be made."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.broker_process import prepare
from tests.zones.network import Zones, ZonesUnavailableError

DELAY_MS = 10.0
"""One way: more than between the zones of a cloud's region, about as much as between two regions."""


@pytest.fixture
def zones() -> Iterator[Zones]:
    """The driver's zone and three others; the test's thread is in the driver's."""
    prepare()  # outside of all zones: it lives on
    with contextlib.ExitStack() as closing:
        try:
            made = closing.enter_context(Zones(4, delay_ms=DELAY_MS))
        except ZonesUnavailableError as error:
            pytest.skip(str(error))
        closing.enter_context(made[0].entered())
        yield made
