"""What a streaming query asks the cluster while it looks for new partitions, over real connections."""

import pytest

from sparklog.protocol.types import TopicPartition
from sparklog.user.client.topics import Leader
from sparklog.user.dataframe.options import StreamReadOptions
from sparklog.user.dataframe.stream_source import StreamSource
from tests.unit.sparklog.user.client.brokers import Brokers, with_brokers


@pytest.mark.parametrize(
    "topics",
    [{"subscribe": "t,u,v"}, {"assign": '{"t": [0], "u": [0], "v": [0]}'}],
    ids=["subscribe", "assign"],
)
def test_stream_of_many_topics_asks_for_all_of_them_in_one_request(topics: dict[str, str]) -> None:
    """Every second each query asks; a hundred topics were a hundred requests, one after the other."""

    def use(brokers: Brokers) -> None:
        names = {"t", "u", "v"}
        brokers.leaders = {TopicPartition(name, 0): Leader(0, 1) for name in names}
        source = StreamSource(
            StreamReadOptions.parse(
                {**topics, "kafka.bootstrap.servers": f"127.0.0.1:{brokers.listeners[-1].port}"}, None
            )
        )
        try:
            for _ in range(2):
                assert source.starts().keys() == brokers.leaders.keys()
            assert brokers.asked_for == [names, names]
        finally:
            source.close()

    with_brokers(use)


def test_stream_of_what_is_available_now_reads_all_of_it_whatever_a_batch_is_to_wait_for() -> None:
    """More can't come: a batch that waited for more was the query's end, with the rest unread."""

    def use(brokers: Brokers) -> None:
        partition = TopicPartition("t", 0)
        brokers.leaders = {partition: Leader(0, 1)}
        options = {
            "subscribe": "t",
            "maxOffsetsPerTrigger": "10",
            "minOffsetsPerTrigger": "5",
            "kafka.bootstrap.servers": f"127.0.0.1:{brokers.listeners[-1].port}",
        }
        source = StreamSource(StreamReadOptions.parse(options, None))
        try:
            starts = source.starts()
            brokers.end_offset = 13
            source.hold_latest()
            first = source.ends(starts, limited=True)
            brokers.end_offset = 20
            last = source.ends(first, limited=True)
            assert (first, last) == ({partition: 10}, {partition: 13})
            assert source.ends(last, limited=True) == last
        finally:
            source.close()

    with_brokers(use)
