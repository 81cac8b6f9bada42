"""Tasks that read from a replica near to them, and go back to the leader when it does not serve them."""

import pytest

from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.user.client.config import FetchConfig
from sparklog.user.client.fetching import PartitionFetcher
from sparklog.user.client.nearest_replica import BrokerPlace, ReaderPlace
from tests.unit.sparklog.user.client.brokers import FIRST, Brokers, with_brokers

NEVER_MS = 3_600_000
BATCH = build_batch([SimpleRecord(value=b"v")])
PLACES = {
    0: BrokerPlace("a", "zone-1"),
    1: BrokerPlace("b", "zone-1"),
    2: BrokerPlace("c", "zone-2"),
    3: BrokerPlace("d", "zone-2"),
}
IN_RACK_1 = ReaderPlace("rack-1", is_own_host=lambda host: False)
"""Beside the follower that is broker 1; the leader is broker 0."""


@pytest.mark.parametrize(
    ("reader_host", "client_rack", "in_sync", "expected"),
    [
        pytest.param("a", None, [0, 1, 2], 0, id="the leader is here"),
        pytest.param("c", None, [0, 1, 2], 2, id="a follower is here"),
        pytest.param("c", "zone-1", [0, 2], 2, id="a host is nearer than a rack"),
        pytest.param("c", None, [0, 1], 0, id="none in sync is here"),
        pytest.param("c", None, [0, 1, 3], 3, id="rack of the brokers here"),
        pytest.param("x", "zone-2", [0, 3, 2], 2, id="rack that is given"),
        pytest.param("x", "zone-1", [1, 0], 0, id="the leader among equals"),
        pytest.param("x", "zone-9", [0, 1, 2], 0, id="a rack without replicas"),
        pytest.param("x", None, [0, 1, 2], 0, id="nothing is known"),
        pytest.param("x", "zone-2", [0, 7], 0, id="a replica without an address"),
    ],
)
def test_replica_on_the_readers_host_is_nearer_than_one_in_its_rack_and_else_the_leader_is_read(
    reader_host: str, client_rack: str | None, in_sync: list[int], expected: int
) -> None:
    """A follower outside the ISR may lag for ever; bytes from the same host cross no network."""
    reader = ReaderPlace(client_rack, is_own_host=reader_host.__eq__)
    assert reader.nearest(0, in_sync, PLACES) == expected


def test_host_with_brokers_of_several_racks_is_in_none_of_them() -> None:
    """Either would be a guess, and both are as near as each other."""
    places = {0: BrokerPlace("x", "zone-1"), 1: BrokerPlace("b", "zone-2"), 2: BrokerPlace("b", "zone-3")}
    places[3] = BrokerPlace("y", "zone-3")
    assert ReaderPlace(is_own_host="b".__eq__).nearest(0, [0, 3], places) == 0


def test_hosts_that_do_not_matter_are_not_resolved() -> None:
    """Each may cost a wait for a name server, before the first record of each task."""
    resolved: list[str] = []

    def is_own_host(host: str) -> bool:
        resolved.append(host)
        return host == "b"

    assert ReaderPlace(is_own_host=is_own_host).nearest(0, [0, 1, 2], PLACES) == 1
    assert ReaderPlace("zone-2", is_own_host=is_own_host).nearest(0, [0, 2], PLACES) == 2
    assert ReaderPlace(is_own_host=is_own_host).nearest(0, [0], PLACES) == 0
    assert resolved == ["a", "b", "a", "c"]


def test_reader_beside_a_follower_fetches_from_it() -> None:
    """All of a range, without a request to the leader."""

    def use(brokers: Brokers) -> None:
        brokers.follower_records = {1: BATCH}
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            fetched = list(PartitionFetcher(client, FetchConfig(), FIRST, 0, 1, reader=IN_RACK_1))
        assert [(bytes(each.records), each.next_offset) for each in fetched] == [(BATCH, 1)]
        assert brokers.fetched == [1]

    with_brokers(use)


@pytest.mark.parametrize("follower_records", [{1: b""}, {}], ids=["without records", "refuses"])
def test_reader_whose_follower_has_no_records_for_it_fetches_from_the_leader_at_once(
    follower_records: dict[int, bytes],
) -> None:
    """The follower has not heard of the high watermark yet, or what it was asked for lies in the tier."""

    def use(brokers: Brokers) -> None:
        brokers.follower_records, brokers.records = follower_records, BATCH
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            config = FetchConfig(max_wait_ms=NEVER_MS)
            fetched = list(PartitionFetcher(client, config, FIRST, 0, 1, reader=IN_RACK_1))
        assert [each.next_offset for each in fetched] == [1]
        assert brokers.fetched == [1, 0]

    with_brokers(use)


def test_reader_whose_follower_dies_fetches_from_the_leader_at_once() -> None:
    """The metadata may name it for a while, and the leader has everything."""

    def use(brokers: Brokers) -> None:
        brokers.records = BATCH
        with brokers.client(retry_backoff_ms=NEVER_MS) as client:
            client.leader(FIRST)
            brokers.die(1)
            fetched = list(PartitionFetcher(client, FetchConfig(), FIRST, 0, 1, reader=IN_RACK_1))
        assert [each.next_offset for each in fetched] == [1]
        assert brokers.fetched == [0]

    with_brokers(use)


def test_reader_whose_follower_is_silent_has_all_of_its_poll_timeout_for_the_leader() -> None:
    """A hung follower used up the time in which the leader, which has everything, would have answered."""

    def use(brokers: Brokers) -> None:
        brokers.silent_followers, brokers.records = {1}, BATCH
        with brokers.client(request_timeout_ms=300, retry_backoff_ms=NEVER_MS) as client:
            config = FetchConfig(poll_timeout_ms=200)
            fetched = list(PartitionFetcher(client, config, FIRST, 0, 1, reader=IN_RACK_1))
            assert [each.next_offset for each in fetched] == [1]
            assert brokers.fetched == [1, 0]
            list(PartitionFetcher(client, config, FIRST, 0, 1, reader=IN_RACK_1))
        assert brokers.fetched == [1, 0, 0]  # the process avoids it for a while

    with_brokers(use)
