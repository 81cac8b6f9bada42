"""Markers on their way: who is sent what, what is tried again, and when a transaction is complete."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.transactions.machine.events import SendMarkers
from sparklog.executor.coordinators.transactions.machine.outstanding_markers import (
    BACKOFF,
    MOST_MARKERS,
    MOST_PARTITIONS,
    OutstandingMarkers,
)
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration, TopicImage, TopicsImage
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, TopicPartition
from tests.examples import examples


class Coordinator(NamedTuple):
    """The leadership of a partition."""

    partition_index: int
    leader_epoch: int


COORDINATOR = Coordinator(partition_index=7, leader_epoch=3)
P0, P1, P2 = (TopicPartition("t", partition) for partition in range(3))
NONE = ErrorCode.none


def image_of(leaders: Mapping[TopicPartition, BrokerId | None]) -> MetadataImage:
    """Return an image in which these brokers lead these partitions."""
    topics: dict[str, dict[int, PartitionRegistration]] = {}
    for (topic, partition), leader in leaders.items():
        topics.setdefault(topic, {})[partition] = PartitionRegistration(
            replicas=(1, 2),
            directories=(None, None),
            isr=(1, 2),
            leader=leader,
            leader_epoch=1,
            partition_epoch=1,
        )
    images = [
        TopicImage(name, UUID(int=number), partitions)
        for number, (name, partitions) in enumerate(topics.items(), 1)
    ]
    return MetadataImage(
        topics=TopicsImage(
            {image.name: image for image in images}, {image.topic_id: image for image in images}
        )
    )


def markers_of(
    transactional_id: str, producer_id: int, *partitions: TopicPartition, committed: bool = True
) -> SendMarkers:
    """Return the effect that has markers sent."""
    return SendMarkers(transactional_id, ProducerStamp(producer_id, 1), committed, 2, frozenset(partitions))


def answer(
    request: WriteTxnMarkersRequest | None, errors: Mapping[TopicPartition, ErrorCode] | None = None
) -> WriteTxnMarkersResponse:
    """Return a broker's answer: no error, but for the partitions named."""
    assert request is not None
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=(errors or {}).get(TopicPartition(topic.name, index), NONE),
                            )
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )


@pytest.fixture
def outstanding() -> OutstandingMarkers:
    """Markers to send in a cluster where broker 1 leads partitions 0 and 1, broker 2 partition 2."""
    outstanding = OutstandingMarkers()
    outstanding.metadata_changed(image_of({P0: 1, P1: 1, P2: 2}), 0)
    return outstanding


def test_markers_go_to_the_leaders_together_and_complete_when_all_are_written(
    outstanding: OutstandingMarkers,
) -> None:
    """COMPLETE with a marker missing would leave a partition's readers waiting for ever."""
    first, second = markers_of("a", 10, P0, P1, P2), markers_of("b", 11, P0, committed=False)
    outstanding.add(COORDINATOR, first, 0)
    outstanding.add(COORDINATOR, second, 0)
    assert sorted(outstanding.ready_brokers) == [1, 2]
    to_1, to_2 = outstanding.next_request(1), outstanding.next_request(2)

    def marker(producer_id: int, committed: bool, *partitions: int) -> WritableTxnMarker:
        return WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=1,
            transaction_result=committed,
            topics=(WritableTxnMarkerTopic(name="t", partition_indexes=partitions),),
            coordinator_epoch=3,
            transaction_version=2,
        )

    assert to_1 == WriteTxnMarkersRequest(markers=(marker(10, True, 0, 1), marker(11, False, 0)))
    assert to_2 == WriteTxnMarkersRequest(markers=(marker(10, True, 2),))
    outstanding.answered(1, answer(to_1), 0)
    assert outstanding.completed == [(COORDINATOR, second)]
    outstanding.answered(2, answer(to_2), 0)
    assert outstanding.completed == [(COORDINATOR, second), (COORDINATOR, first)]
    assert len(outstanding) == 0


def test_partitions_without_a_marker_are_told_while_it_is_sent(outstanding: OutstandingMarkers) -> None:
    """An operator looks for the one partition of many that holds a decided transaction up."""
    outstanding.add(COORDINATOR, markers_of("a", 10, P0, P1, P2), 0)
    assert outstanding.missing(COORDINATOR.partition_index, "a") == {P0, P1, P2}
    request = outstanding.next_request(1)
    outstanding.answered(1, answer(request, {P1: ErrorCode.not_enough_replicas}), 0)
    assert outstanding.missing(COORDINATOR.partition_index, "a") == {P1, P2}
    assert outstanding.missing(COORDINATOR.partition_index, "b") is None
    assert outstanding.missing(COORDINATOR.partition_index + 1, "a") is None


def test_markers_of_very_many_partitions_go_in_requests_that_brokers_take() -> None:
    """A request that names too many is refused, and would be sent again for ever, all others behind it."""
    partitions = [TopicPartition("t", number) for number in range(2 * MOST_PARTITIONS + 1)]
    outstanding = OutstandingMarkers()
    outstanding.metadata_changed(image_of(dict.fromkeys(partitions, 1)), 0)
    large, small = markers_of("large", 10, *partitions), markers_of("small", 11, P0)
    outstanding.add(COORDINATOR, large, 0)
    outstanding.add(COORDINATOR, small, 0)
    sizes = []
    while list(outstanding.ready_brokers):
        request = outstanding.next_request(1)
        assert request is not None
        sizes.append([len(topic.partition_indexes) for each in request.markers for topic in each.topics])
        outstanding.answered(1, answer(request), 0)
    assert sizes == [[MOST_PARTITIONS], [1, MOST_PARTITIONS - 1], [2]]
    assert outstanding.completed == [(COORDINATOR, small), (COORDINATOR, large)]


def test_markers_behind_many_that_are_forgotten_go_with_the_next_request(
    outstanding: OutstandingMarkers,
) -> None:
    """Nothing else might ever have them sent: their readers would wait for as long as it is quiet."""
    outstanding.add(COORDINATOR, markers_of("first", 0, P0), 0)
    under_way = outstanding.next_request(1)
    for number in range(MOST_MARKERS + 1):
        outstanding.add(COORDINATOR, markers_of(f"old-{number}", 1 + number, P0), 0)
    outstanding.forget(COORDINATOR.partition_index)
    mine = markers_of("mine", 9_999, P0)
    outstanding.add(Coordinator(8, 1), mine, 0)
    outstanding.answered(1, answer(under_way), 0)
    assert list(outstanding.ready_brokers) == [1]
    request = outstanding.next_request(1)
    assert request is not None and [each.producer_id for each in request.markers] == [9_999]
    outstanding.answered(1, answer(request), 0)
    assert outstanding.completed == [(Coordinator(8, 1), mine)]


def test_what_is_decided_while_a_broker_is_asked_goes_with_its_next_request(
    outstanding: OutstandingMarkers,
) -> None:
    """Transactions by the thousand share requests instead of having one each."""
    outstanding.add(COORDINATOR, markers_of("a", 10, P0), 0)
    under_way = outstanding.next_request(1)
    for number in range(5):
        outstanding.add(COORDINATOR, markers_of(f"b{number}", 20 + number, P1), 0)
    assert list(outstanding.ready_brokers) == []
    outstanding.answered(1, answer(under_way), 0)
    assert list(outstanding.ready_brokers) == [1]
    following = outstanding.next_request(1)
    assert following is not None and [marker.producer_id for marker in following.markers] == [
        20,
        21,
        22,
        23,
        24,
    ]


@pytest.mark.parametrize(
    "error_code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.unknown_server_error,
        None,
    ],
)
def test_marker_that_failed_is_tried_again_later_for_ever(
    outstanding: OutstandingMarkers, error_code: ErrorCode | None
) -> None:
    """Giving up would leave a committed transaction's records unread; None is a lost connection."""
    outstanding.add(COORDINATOR, markers_of("a", 10, P0, P1), 0)
    now_ms = 0
    for failures in range(10):
        request = outstanding.next_request(1)
        response = None if error_code is None else answer(request, {P0: error_code, P1: error_code})
        outstanding.answered(1, response, now_ms)
        assert list(outstanding.ready_brokers) == []
        assert outstanding.next_due_ms == now_ms + BACKOFF.pause_ms(failures)
        now_ms = outstanding.next_due_ms
        outstanding.wake(now_ms)
        assert list(outstanding.ready_brokers) == [1]
    assert outstanding.completed == []
    outstanding.answered(1, answer(outstanding.next_request(1)), now_ms)
    assert len(outstanding.completed) == 1


def test_marker_follows_its_partition_to_another_leader_without_waiting(
    outstanding: OutstandingMarkers,
) -> None:
    """The leader died: its successor is asked as soon as it is known, not after a pause."""
    outstanding.add(COORDINATOR, markers_of("a", 10, P0), 0)
    outstanding.next_request(1)
    outstanding.add(COORDINATOR, markers_of("b", 11, P1), 0)
    outstanding.answered(1, None, 0)
    outstanding.metadata_changed(image_of({P0: None, P1: 2, P2: 2}), 5)
    assert list(outstanding.ready_brokers) == [2]
    outstanding.metadata_changed(image_of({P0: 2, P1: 2, P2: 2}), 9)
    request = outstanding.next_request(2)
    assert request is not None and [marker.producer_id for marker in request.markers] == [11, 10]
    outstanding.answered(2, answer(request), 9)
    assert len(outstanding.completed) == 2


def test_deleted_topic_needs_no_marker(outstanding: OutstandingMarkers) -> None:
    """Otherwise the transactional id could never be used again."""
    resting, waiting = markers_of("a", 10, P0), markers_of("b", 11, P1, P2)
    outstanding.add(COORDINATOR, resting, 0)
    outstanding.next_request(1)
    outstanding.answered(1, None, 0)
    outstanding.add(COORDINATOR, waiting, 0)
    outstanding.metadata_changed(image_of({P2: 2}), 5)
    assert outstanding.completed == [(COORDINATOR, resting)]
    outstanding.answered(2, answer(outstanding.next_request(2)), 5)
    assert outstanding.completed[1:] == [(COORDINATOR, waiting)]
    gone = markers_of("c", 12, P0, P1)
    outstanding.add(COORDINATOR, gone, 6)
    assert outstanding.completed[2:] == [(COORDINATOR, gone)]


def test_transaction_without_partitions_is_complete_at_once(outstanding: OutstandingMarkers) -> None:
    """Version 2 aborts those too."""
    markers = markers_of("a", 10)
    outstanding.add(COORDINATOR, markers, 0)
    assert outstanding.completed == [(COORDINATOR, markers)]


@pytest.mark.parametrize(
    "error_code", [ErrorCode.transaction_coordinator_fenced, ErrorCode.invalid_producer_epoch]
)
def test_coordinator_that_was_replaced_sends_nothing_more_and_completes_nothing(
    outstanding: OutstandingMarkers, error_code: ErrorCode
) -> None:
    """Its successor sends the markers, and knows when they are written."""
    outstanding.add(COORDINATOR, markers_of("a", 10, P0, P1, P2), 0)
    outstanding.answered(1, answer(outstanding.next_request(1), {P1: error_code}), 0)
    assert outstanding.next_request(2) is None
    assert outstanding.completed == []
    assert len(outstanding) == 0


def test_forgotten_coordinator_s_markers_end_silently(outstanding: OutstandingMarkers) -> None:
    """A broker that lost the partition may neither send nor say what it was about to."""
    outstanding.add(COORDINATOR, markers_of("a", 10, P0), 0)
    other = Coordinator(8, 1)
    outstanding.add(other, markers_of("b", 11, P1), 0)
    under_way = outstanding.next_request(1)
    outstanding.add(COORDINATOR, markers_of("c", 12, P2), 0)
    outstanding.forget(COORDINATOR.partition_index)
    assert outstanding.next_request(2) is None
    # It leads again at once, and sends what it finds prepared.
    again = Coordinator(COORDINATOR.partition_index, 5)
    outstanding.add(again, markers_of("a", 10, P0), 0)
    outstanding.answered(1, answer(under_way), 0)
    assert [coordinator for coordinator, _ in outstanding.completed] == [other]
    request = outstanding.next_request(1)
    assert request is not None and request.markers[0].coordinator_epoch == 5


@examples(40)
@given(st.data())
def test_whatever_fails_only_what_has_all_markers_is_complete_and_everything_becomes_so(
    data: st.DataObject,
) -> None:
    """Leaders move, answers are lost, topics go: in the end each transaction is complete, once."""
    outstanding = OutstandingMarkers()
    partitions = [P0, P1, P2]
    brokers = st.sampled_from([1, 2, None])
    image = image_of(dict.fromkeys(partitions, 1))
    outstanding.metadata_changed(image, 0)
    written: set[tuple[int, TopicPartition]] = set()
    added: list[SendMarkers] = []
    now_ms = 0

    def send(errors: Mapping[TopicPartition, ErrorCode], lost: bool) -> None:
        for broker_id in list(outstanding.ready_brokers):
            request = outstanding.next_request(broker_id)
            if request is None:
                continue
            for marker in request.markers:
                for topic in marker.topics:
                    for index in topic.partition_indexes:
                        partition = TopicPartition(topic.name, index)
                        if errors.get(partition, NONE) is NONE:
                            written.add((marker.producer_id, partition))
            outstanding.answered(broker_id, None if lost else answer(request, errors), now_ms)

    for number in range(data.draw(st.integers(1, 6))):
        subset = data.draw(st.sets(st.sampled_from(partitions)))
        added.append(markers_of(f"t{number}", number, *subset))
        outstanding.add(COORDINATOR, added[-1], now_ms)
        step = data.draw(st.sampled_from(["send", "fail", "lose", "move", "pass"]))
        if step == "move":
            leaders = {partition: data.draw(brokers) for partition in partitions}
            outstanding.metadata_changed(image_of(leaders), now_ms)
        elif step == "pass":
            now_ms += 300
            outstanding.wake(now_ms)
        else:
            failing = data.draw(st.sets(st.sampled_from(partitions))) if step == "fail" else set()
            send(dict.fromkeys(failing, ErrorCode.not_leader_or_follower), step == "lose")
        for _, markers in outstanding.completed:
            producer_id = markers.producer.producer_id
            assert {(producer_id, partition) for partition in markers.partitions} <= written
    outstanding.metadata_changed(image_of(dict.fromkeys(partitions, 2)), now_ms)
    while len(outstanding):
        send({}, lost=False)
        if outstanding.next_due_ms is not None:
            now_ms = outstanding.next_due_ms
            outstanding.wake(now_ms)
    assert sorted(markers.transactional_id for _, markers in outstanding.completed) == sorted(
        markers.transactional_id for markers in added
    )
