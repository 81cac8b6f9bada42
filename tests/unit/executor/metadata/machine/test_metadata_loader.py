"""Which images are published, and when a broker has caught up: the rules, without a log."""

from collections.abc import Sequence

from sparklog.executor.metadata.machine.metadata_loader import MetadataLoader, difference
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import MetadataRecord
from tests.unit.executor.metadata.metadata_scene import BROKER, registration, topic

OURS = 7
"""The broker epoch of this incarnation."""


def image_of(*records: MetadataRecord) -> MetadataImage:
    """Return the image after a batch with one record an offset."""
    return replay_records(EMPTY_IMAGE, records, len(records) - 1, 1)[0]


def loader_at(records: Sequence[MetadataRecord], committed: int) -> MetadataLoader:
    """Return a loader that has replayed `records` of a log that is committed up to `committed`."""
    loader = MetadataLoader(BROKER, EMPTY_IMAGE)
    loader.fetched(committed, committed, sent_ms=10)
    loader.replay(records, len(records) - 1, 1)
    return loader


def test_first_image_waits_for_the_registration_of_this_incarnation() -> None:
    """An older one may name this broker as a leader by virtue of a process that is dead."""
    loader = loader_at([registration(OURS - 1)], committed=1)
    assert loader.next_publication(None) is None
    assert loader.next_publication(OURS) is None
    assert loader.caught_up_ms() is None
    loader.fetched(2, 2, sent_ms=20)
    assert loader.unread == (1, 2)
    loader.replay([registration(OURS)], 1, 1)
    published = loader.next_publication(OURS)
    assert published == (loader.image, difference(EMPTY_IMAGE, loader.image))
    assert loader.next_publication(OURS) is None
    assert loader.caught_up_ms() == 20


def test_first_image_holds_all_that_was_committed_at_the_first_fetch() -> None:
    """A broker that serves less would tell clients of topics that are gone, and not of others."""
    loader = loader_at([registration(OURS)], committed=3)
    assert loader.next_publication(OURS) is None
    loader.replay([topic(0), topic(1)], 2, 1)
    assert loader.next_publication(OURS) is not None


def test_images_after_the_first_come_with_what_their_records_changed() -> None:
    """Subscribers look at the difference alone."""
    loader = loader_at([registration(OURS)], committed=1)
    assert loader.next_publication(OURS) is not None
    loader.fetched(2, 2, sent_ms=20)
    loader.replay([topic(0)], 1, 1)
    published = loader.next_publication(OURS)
    assert published is not None
    image, delta = published
    assert image is loader.image
    assert delta.created_topics == {topic(0).topic_id}


def test_snapshot_that_was_downloaded_is_gone_over_to_as_if_it_had_been_replayed() -> None:
    """What lies between was never seen here, and must be acted on all the same."""
    loader = loader_at([registration(OURS)], committed=1)
    assert loader.next_publication(OURS) is not None
    before, snapshot = loader.image, image_of(registration(OURS), topic(0), topic(1))
    assert loader.begin_behind(snapshot)
    assert loader.unread is None
    assert loader.next_publication(OURS) == (snapshot, difference(before, snapshot))
    assert not loader.begin_behind(before), "an older one has nothing new in it"
    assert loader.image is snapshot


def test_broker_has_caught_up_by_the_last_answer_of_which_nothing_is_left() -> None:
    """Its lease holds again only from a fetch that it sent after the lease had been renewed."""
    loader = loader_at([registration(OURS)], committed=1)
    loader.fetched(1, 2, sent_ms=20)
    assert loader.next_publication(OURS) is not None
    assert loader.caught_up_ms() == 10
    assert loader.caught_up_ms() is None
    loader.fetched(2, 2, sent_ms=30)
    loader.replay([topic(0)], 1, 1)
    assert loader.next_publication(OURS) is not None
    assert loader.caught_up_ms() == 30
