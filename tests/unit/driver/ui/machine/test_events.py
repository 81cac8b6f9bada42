"""What has happened between two images, and why."""

from dataclasses import replace
from uuid import UUID

from sparklog.driver.ui.machine.events import MAX_EVENTS, CommittedImage, EventLog
from sparklog.driver.ui.machine.status import Event
from sparklog.node.metadata.image import MetadataImage
from tests.unit.driver.ui.cluster_images import broker, image, partition, with_partitions


def events_of(before: MetadataImage, *after: MetadataImage, **reasons: str) -> list[tuple[str, str, str]]:
    log = EventLog(before)
    departures = {int(key[1:]): reason for key, reason in reasons.items()}
    log.committed([CommittedImage(each, departures) for each in after], now_ms=7)
    assert all(event.at_ms == 7 for event in log.events)
    return [(event.kind, event.subject, event.reason) for event in log.events]


def test_dead_broker_is_one_event_of_each_kind_with_the_reason() -> None:
    """A broker that led thousands of partitions must not push everything else out of the list."""
    before = image({"a": [partition(0) for _ in range(1_000)]})
    after = with_partitions(
        before, "a", **{f"p{number}": partition(1, isr=(1, 2), leader_epoch=2) for number in range(1_000)}
    )
    after = replace(after, brokers={**after.brokers, 0: broker(0, fenced=True)})
    assert events_of(before, after, b0="its process has ended") == [
        (
            "ISR shrinks",
            "a-0, a-1, a-2 and 997 more",
            "broker 0 is fenced, its process has ended",
        ),
        (
            "election",
            "a-0, a-1, a-2 and 997 more",
            "broker 1 leads: broker 0 is fenced, its process has ended",
        ),
        ("fenced", "broker 0", "its process has ended"),
    ]


def test_changes_of_several_images_are_all_seen() -> None:
    """A leadership that went and came back between two looks was an outage."""
    before = image({"a": [partition(0)]})
    lost = with_partitions(before, "a", p0=partition(None, leader_epoch=2))
    back = with_partitions(lost, "a", p0=partition(0, leader_epoch=3))
    assert events_of(before, lost, back) == [
        ("election", "a-0", "broker 0 leads: no leader before"),
        ("election", "a-0", "no leader: none of its replicas may lead"),
    ]


def test_election_outside_of_the_isr_is_called_unclean() -> None:
    """Records may be lost: that is the line to find."""
    before = image({"a": [partition(0, isr=(0,))]}, b0=broker(0, fenced=True))
    after = with_partitions(before, "a", p0=partition(2, isr=(2,), leader_epoch=2))
    assert events_of(before, after)[-1] == (
        "election",
        "a-0",
        "broker 2 leads, an unclean election: broker 0 is fenced",
    )


def test_election_of_an_eligible_replica_is_clean() -> None:
    """It has every committed record (KIP-966)."""
    before = image({"a": [partition(None, isr=(), elr=(2,))]})
    after = with_partitions(before, "a", p0=partition(2, isr=(2,)))
    assert events_of(before, after)[-1] == ("election", "a-0", "broker 2 leads: no leader before")


def test_election_of_the_preferred_leader_says_so() -> None:
    """Nothing has failed."""
    before = image({"a": [partition(1)]})
    after = with_partitions(before, "a", p0=partition(0, leader_epoch=2))
    assert events_of(before, after) == [
        ("election", "a-0", "broker 0 leads: it is the preferred leader"),
    ]


def test_isr_of_a_live_broker_shrinks_because_it_is_behind_and_expands_when_it_is_not() -> None:
    """A slow disk shows like this, and nothing else does."""
    before = image({"a": [partition(0)]})
    behind = with_partitions(before, "a", p0=partition(0, isr=(0, 1)))
    assert events_of(before, behind, before) == [
        ("ISR expands", "a-0", "broker 2 has caught up"),
        ("ISR shrinks", "a-0", "broker 2 has fallen behind"),
    ]


def test_broker_that_leaves_and_comes_back_is_followed() -> None:
    """A rolling restart is read off these lines."""
    before = image({})
    leaving = image({}, b1=broker(1, in_controlled_shutdown=True))
    gone = image({}, b1=broker(1, in_controlled_shutdown=True, fenced=True))
    again = image({}, b1=broker(1, broker_epoch=99, fenced=True))
    serving = image({}, b1=broker(1, broker_epoch=99))
    assert events_of(before, leaving, gone, again, serving, b1="it asked to leave") == [
        ("unfenced", "broker 1", "it has applied its registration"),
        ("registered", "broker 1", "broker epoch 99"),
        ("fenced", "broker 1", "it asked to leave"),
        ("leaving", "broker 1", "it asked to leave"),
    ]


def test_topics_that_come_and_go_are_named() -> None:
    """Somebody deleted it, at that time."""
    empty, full = image({}), image({"a": [partition()]})
    assert events_of(empty, full, empty) == [("topic deleted", "a", ""), ("topic created", "a", "")]


def test_failed_directory_is_an_event() -> None:
    """A disk that fails is noticed before all of the broker's partitions are looked through."""
    before = image({}, b1=broker(1, log_directories=(UUID(int=1), UUID(int=2))))
    after = image({}, b1=broker(1, log_directories=(UUID(int=1),)))
    assert events_of(before, after) == [("disk failed", "broker 1", "1 of its log directories went offline")]


def test_events_are_bounded_and_the_same_object_while_nothing_happens() -> None:
    """The page is rendered again only when there is something new."""
    log = EventLog(image({}))
    for number in range(MAX_EVENTS + 5):
        log.note(Event(at_ms=number, kind="restarted", subject="rack-0", reason=""))
    assert len(log.events) == MAX_EVENTS
    assert log.events[0].at_ms == MAX_EVENTS + 4
    before = log.events
    log.committed([], now_ms=1)
    assert log.events is before
