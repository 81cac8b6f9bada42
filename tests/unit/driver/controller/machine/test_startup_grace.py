"""Whom the clients of a new driver wait for, and how long."""

from dataclasses import replace
from uuid import UUID

from sparklog.driver.controller.machine.startup_grace import STARTUP_GRACE_MS, StartupGrace
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.registrations import BrokerRegistration

INHERITED = 100
ELECTED_MS = 5_000
SOON_MS = ELECTED_MS + 10


def image(**fenced: bool) -> MetadataImage:
    """Return an image of brokers that have registered with this driver, or, named `old_n`, with the last."""
    brokers = {}
    for name, is_fenced in fenced.items():
        kind, _, number = name.partition("_")
        broker_id = int(number)
        brokers[broker_id] = BrokerRegistration(
            broker_id=broker_id,
            broker_epoch=(7 if kind == "old" else INHERITED) + broker_id,
            incarnation_id=UUID(int=broker_id),
            listeners=(),
            features=(),
            rack=None,
            fenced=is_fenced,
        )
    return replace(EMPTY_IMAGE, offset=INHERITED + 20, brokers=brokers)


def startup_grace() -> StartupGrace:
    return StartupGrace([0, 1], INHERITED, ELECTED_MS)


def test_clients_wait_until_every_broker_is_back_and_knows_of_the_others() -> None:
    """A broker that does not would tell its clients that there are fewer."""
    late = startup_grace()
    assert late.lasts(image(new_0=False), {0: 121}, SOON_MS)
    assert late.lasts(image(new_0=False, new_1=True), {0: 121, 1: 121}, SOON_MS)
    whole = image(new_0=False, new_1=False)
    assert late.lasts(whole, {0: 121, 1: 120}, SOON_MS)
    assert not late.lasts(whole, {0: 121, 1: 121}, SOON_MS)


def test_clients_do_not_take_a_broker_of_the_former_driver_for_one_that_is_back() -> None:
    """Nobody has told the log yet that it is gone."""
    assert startup_grace().lasts(image(new_0=False, old_1=False), {0: 121, 1: 121}, SOON_MS)


def test_clients_wait_for_a_broker_only_so_long() -> None:
    """It may never come back; what the others lead is not to wait for it."""
    late_ms = ELECTED_MS + STARTUP_GRACE_MS
    assert startup_grace().lasts(image(new_0=False), {0: 121}, late_ms - 1)
    assert not startup_grace().lasts(image(new_0=False), {0: 121}, late_ms)


def test_clients_wait_for_as_long_as_nothing_of_this_driver_is_committed() -> None:
    """There is nothing to tell them that a majority knows."""
    assert startup_grace().lasts(EMPTY_IMAGE, {}, ELECTED_MS + 10 * STARTUP_GRACE_MS)
