"""Which brokers are suspected of being lost, and which are still listed after they were fenced."""

from sparklog.executor.fetching.machine.suspected_brokers import (
    JUST_FENCED_MS,
    SUSPICION_MS,
    SuspectedBrokers,
)
from sparklog.node.metadata.image import BrokerRegistration
from tests.builders import broker, image

CLIENT, OTHER_CLIENT = object(), object()
TOPICS = {"flights", "planes"}


def suspecting(*brokers: BrokerRegistration) -> SuspectedBrokers:
    suspected = SuspectedBrokers()
    suspected.image_changed(image(brokers), 0)
    return suspected


def test_lost_connection_makes_a_leader_suspected_until_others_lead() -> None:
    """The image that fences it may leave it some partitions, which move with the next ones."""
    suspected = suspecting(broker(1), broker(2))
    suspected.connection_lost(2, now_ms=1_000)
    assert suspected.suspected_until_ms({1, 2}, 1_010) == 1_000 + SUSPICION_MS
    assert suspected.suspected_until_ms({1}, 1_010) is None
    suspected.image_changed(image([broker(1), broker(2, fenced=True)]), 1_020)
    assert suspected.suspected_until_ms({1, 2}, 1_021) == 1_020 + SUSPICION_MS
    assert suspected.suspected_until_ms({1}, 1_021) is None


def test_suspicion_ends_when_the_broker_serves_or_time_is_up() -> None:
    """A connection may break for many reasons; clients must not wait for what will not come."""
    suspected = suspecting(broker(1), broker(2))
    suspected.connection_lost(2, now_ms=1_000)
    assert suspected.connection_serves(2)
    assert suspected.suspected_until_ms({2}, 1_001) is None
    assert not suspected.connection_serves(2)
    suspected.connection_lost(2, now_ms=2_000)
    suspected.connection_lost(2, now_ms=2_400)
    assert suspected.suspected_until_ms({2}, 2_499) == 2_500
    assert suspected.suspected_until_ms({2}, 2_500) is None
    suspected.connection_lost(2, now_ms=2_600)
    assert suspected.suspected_until_ms({2}, 2_601) is None


def test_lost_connection_to_a_fenced_or_unknown_broker_means_nothing() -> None:
    """Such a broker leads nothing that a client could be told of."""
    suspected = suspecting(broker(1, fenced=True))
    suspected.connection_lost(1, 0)
    suspected.connection_lost(9, 0)
    assert suspected.suspected_until_ms({1, 9}, 1) is None


def test_restarted_broker_is_not_suspected_for_its_former_process() -> None:
    """Its new registration is another process with connections of its own."""
    suspected = suspecting(broker(1))
    suspected.connection_lost(1, 0)
    suspected.image_changed(image([broker(1, broker_epoch=50)]), 1)
    assert suspected.suspected_until_ms({1}, 2) is None


def test_fenced_broker_is_listed_in_the_first_answer_about_a_topic_and_in_no_later_one() -> None:
    """The first answer moves the partitions away from it, the second one lets the client forget it."""
    gone = broker(2)
    suspected = suspecting(broker(1), gone)
    assert suspected.just_fenced(CLIENT, TOPICS, 0) == ()
    suspected.image_changed(image([broker(1), broker(2, fenced=True)]), 10)
    assert suspected.just_fenced(CLIENT, {"flights"}, 11) == (gone,)
    assert suspected.just_fenced(CLIENT, {"flights"}, 11) == ()
    assert suspected.just_fenced(CLIENT, TOPICS, 12) == (gone,)
    assert suspected.just_fenced(CLIENT, TOPICS, 13) == ()
    assert suspected.just_fenced(CLIENT, {"planes"}, 13) == ()
    assert suspected.just_fenced(OTHER_CLIENT, TOPICS, 14) == (gone,)


def test_fenced_broker_is_listed_to_whoever_asks_for_brokers_only() -> None:
    """An answer without topics moves no partition, so the one that does is still to come."""
    suspected = suspecting(broker(2))
    suspected.image_changed(image([broker(2, fenced=True)]), 10)
    assert suspected.just_fenced(CLIENT, set(), 11) == (broker(2),)
    assert suspected.just_fenced(CLIENT, set(), 11) == (broker(2),)
    assert suspected.just_fenced(CLIENT, TOPICS, 12) == (broker(2),)


def test_fenced_broker_is_listed_for_a_few_seconds_at_most() -> None:
    """Who asks later has found his way already; the list shall be what is there."""
    suspected = suspecting(broker(2))
    suspected.image_changed(image([broker(2, fenced=True)]), 10)
    assert suspected.just_fenced(CLIENT, TOPICS, 10 + JUST_FENCED_MS - 1) == (broker(2),)
    assert suspected.just_fenced(OTHER_CLIENT, TOPICS, 10 + JUST_FENCED_MS) == ()


def test_broker_that_is_back_is_no_longer_listed_as_it_was() -> None:
    """Its old address must not hide the new one; until it serves again, the old one is no worse."""
    suspected = suspecting(broker(2))
    suspected.image_changed(image([broker(2, fenced=True)]), 10)
    suspected.image_changed(image([broker(2, broker_epoch=50, fenced=True)]), 11)
    assert suspected.just_fenced(CLIENT, TOPICS, 12) == (broker(2),)
    suspected.image_changed(image([broker(2, broker_epoch=50)]), 13)
    assert suspected.just_fenced(OTHER_CLIENT, TOPICS, 14) == ()


def test_unregistered_broker_is_listed_like_a_fenced_one() -> None:
    """To a client both are a broker that it is no longer told of."""
    suspected = suspecting(broker(1), broker(2))
    suspected.image_changed(image([broker(1)]), 10)
    assert suspected.just_fenced(CLIENT, TOPICS, 11) == (broker(2),)
