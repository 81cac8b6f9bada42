"""Whom clients may be told of by every broker alike."""

from dataclasses import replace

from sparklog.driver.controller.machine.live_brokers import LiveBrokers
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.registrations import BrokerRegistration


def image(offset: int, **brokers: tuple[int, bool]) -> MetadataImage:
    """Return an image of brokers, each with its epoch and whether it is fenced."""
    registrations = {
        int(name.removeprefix("b")): BrokerRegistration(
            broker_id=int(name.removeprefix("b")),
            broker_epoch=epoch,
            incarnation_id=None,
            listeners=(),
            fenced=fenced,
        )
        for name, (epoch, fenced) in brokers.items()
    }
    return replace(EMPTY_IMAGE, offset=offset, brokers=registrations)


def test_brokers_know_each_other_when_each_has_heard_of_the_last_one() -> None:
    """The one that has not tells of a smaller cluster, and clients drop whom it leaves out."""
    live = LiveBrokers()
    live.committed(image(10, b0=(3, False), b1=(5, True)))
    assert live.know_each_other([0], {0: 11})
    assert not live.know_each_other([0, 1], {0: 11, 1: 11})
    live.committed(image(14, b0=(3, False), b1=(5, False)))
    assert not live.know_each_other([0, 1], {0: 14, 1: 15})
    assert live.know_each_other([0, 1], {0: 15, 1: 15})
    live.committed(image(30, b0=(3, False), b1=(5, False)))
    assert live.know_each_other([0, 1], {0: 15, 1: 15}), "what came later is about others"


def test_broker_that_registers_anew_has_to_be_heard_of_anew() -> None:
    """It listens at another port, and what its former process knew is forgotten."""
    live = LiveBrokers()
    live.committed(image(10, b0=(3, False), b1=(5, False)))
    live.committed(image(20, b0=(3, False), b1=(18, False)))
    assert not live.know_each_other([0, 1], {0: 20, 1: 21})
    assert live.know_each_other([0, 1], {0: 21, 1: 21})
