"""Which partitions a query has when brokers do not know all of them, over real connections."""

from collections.abc import Callable
from uuid import UUID

import pytest

from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.errors import UnknownTopicError
from sparklog.user.client.topics import Leader
from sparklog.user.dataframe.errors import DataLossError
from sparklog.user.dataframe.options import StreamReadOptions
from sparklog.user.dataframe.partition_discovery import PartitionDiscovery, absent_topics
from tests.unit.sparklog.user.client.brokers import FIRST, SECOND, Brokers, with_brokers

OF_U = TopicPartition("u", 0)
FORMER, PRESENT = UUID(int=11), UUID(int=12)


def with_discovery(use: Callable[[Brokers, PartitionDiscovery], None], **options: str) -> None:
    """Run `use` beside three brokers, with what a query of topics t and u knows of them."""

    def use_both(brokers: Brokers) -> None:
        brokers.leaders = {FIRST: Leader(0, 1), OF_U: Leader(0, 1)}
        given = {
            "subscribe": "t,u",
            # For how many hundredths of a second one is waited for that nobody knows.
            "fetchOffset.numRetries": "20",
            "fetchOffset.retryIntervalMs": "10",
            "kafka.bootstrap.servers": f"127.0.0.1:{brokers.listeners[-1].port}",
            **options,
        }
        read = StreamReadOptions.parse(given, None).read
        with ClusterClient(read.client) as cluster:
            use(brokers, PartitionDiscovery(cluster, read))

    with_brokers(use_both)


def test_absent_are_topics_that_nobody_knows_and_those_that_lack_a_partition() -> None:
    """What was not expected is not missed."""
    assert absent_topics([FIRST, SECOND, OF_U], [FIRST, SECOND], []) == {"u"}
    assert absent_topics([FIRST, SECOND], [FIRST, OF_U], []) == {"t"}
    assert absent_topics([FIRST], [FIRST, SECOND], ["u"]) == {"u"}
    assert absent_topics([], [FIRST], []) == set()


def test_topic_that_is_gone_is_waited_for_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each second's look waited three seconds for it, and wrote a line, for as long as the query ran."""

    def use(brokers: Brokers, discovery: PartitionDiscovery) -> None:
        discovery.refresh()
        for times in (1, 2):
            del brokers.leaders[OF_U]
            asked = []
            for _ in range(3):
                brokers.asked_for.clear()
                discovery.refresh()
                assert discovery.partitions.keys() == {FIRST}
                asked.append(sum("u" in topics for topics in brokers.asked_for))
            # With the other one, and by itself.
            assert asked[0] > 2
            assert asked[1:] == [2, 2]
            warnings = [each for each in caplog.records if "continuing without it" in each.message]
            assert len(warnings) == times
            # Back, and gone again, is news.
            brokers.leaders[OF_U] = Leader(0, 1)
            discovery.refresh()
            assert discovery.partitions.keys() == {FIRST, OF_U}

    with_discovery(use, failOnDataLoss="false")


def test_topic_that_is_gone_ends_a_new_query_and_not_one_that_has_read_it() -> None:
    """A query that went on without it, as it was asked to, could not be started again."""

    def use(brokers: Brokers, discovery: PartitionDiscovery) -> None:
        del brokers.leaders[OF_U]
        with pytest.raises(UnknownTopicError, match="topic u does not exist"):
            discovery.refresh(is_new_query=True)
        discovery.refresh({FIRST, OF_U})
        assert discovery.partitions.keys() == {FIRST}

    with_discovery(use, failOnDataLoss="false")


def test_topic_that_is_gone_ends_every_query_that_is_to_fail_on_data_loss() -> None:
    """What it had and was not read is lost."""

    def use(brokers: Brokers, discovery: PartitionDiscovery) -> None:
        discovery.refresh()
        del brokers.leaders[OF_U]
        with pytest.raises(UnknownTopicError, match="topic u does not exist"):
            discovery.refresh()

    with_discovery(use)


def test_partition_that_the_broker_that_is_asked_does_not_know_yet_is_kept() -> None:
    """It was taken for deleted at once; of one topic partitions never become fewer."""

    def use(brokers: Brokers, discovery: PartitionDiscovery) -> None:
        behind = dict(brokers.leaders)
        brokers.leaders[SECOND] = Leader(1, 1)
        discovery.refresh()
        brokers.believed = behind
        brokers.asked_for.clear()
        discovery.refresh()
        assert discovery.partitions.keys() == {FIRST, SECOND, OF_U}
        assert brokers.asked_for == [{"t", "u"}], "it is not waited for either"

    with_discovery(use)


def test_partition_of_the_position_that_nobody_knows_is_waited_for_and_then_given_up() -> None:
    """A query that is started again knows of it from its checkpoint alone, and may ask who is behind."""

    def use(brokers: Brokers, discovery: PartitionDiscovery) -> None:
        asked = []
        for _ in range(2):
            brokers.asked_for.clear()
            discovery.refresh({FIRST, SECOND})
            assert discovery.partitions.keys() == {FIRST, OF_U}
            asked.append(len(brokers.asked_for))
        assert asked[0] > 2
        assert asked[1] == 1

    with_discovery(use)


def test_topic_that_was_taken_for_its_former_one_is_read_again_when_it_is_told_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who was behind made the topic a former one; every answer was then ignored, without a word, for ever."""

    def use(brokers: Brokers, discovery: PartitionDiscovery) -> None:
        told = []
        for topic_id in (PRESENT, FORMER, PRESENT, PRESENT):
            brokers.told_ids = [topic_id]
            discovery.refresh()
            told.append((dict(discovery.partitions), set(discovery.recreated)))
            discovery.settle()
        present, former = ({FIRST: each, OF_U: each} for each in (PRESENT, FORMER))
        assert told == [(present, set()), (former, {"t", "u"}), (present, {"t", "u"}), (present, set())]
        assert caplog.text.count("topic t was deleted and created again") == 2

    with_discovery(use, failOnDataLoss="false")


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_topic_whose_former_id_is_told_by_one_who_is_behind_stays_what_it_is(
    fail_on_data_loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One answer out of date ended the query, or had it read everything again."""

    def use(brokers: Brokers, discovery: PartitionDiscovery) -> None:
        brokers.told_ids = [PRESENT]
        discovery.refresh()
        brokers.told_ids = [FORMER, FORMER, PRESENT]
        discovery.refresh()
        assert set(discovery.partitions.values()) == {PRESENT}
        assert discovery.recreated == set()
        assert not caplog.records

    with_discovery(use, **{"failOnDataLoss": fail_on_data_loss, "fetchOffset.numRetries": "500"})


def test_topic_that_was_made_anew_ends_a_query_that_is_to_fail_on_data_loss_when_it_is_told_for_a_while() -> (
    None
):
    """It is asked for again, and in vain: what was not read of the former one is lost."""

    def use(brokers: Brokers, discovery: PartitionDiscovery) -> None:
        brokers.told_ids = [FORMER]
        discovery.refresh()
        brokers.told_ids = [PRESENT]
        brokers.asked_for.clear()
        with pytest.raises(DataLossError, match="topic t was deleted and created again"):
            discovery.refresh()
        assert len(brokers.asked_for) > 2

    with_discovery(use)
