"""The bytes of a snapshot: whole, or refused."""

from uuid import UUID

import pytest
from hypothesis import given
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord

from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import ConfigRecord, FeatureLevelRecord, ResourceType
from sparklog.node.metadata_log.machine.control_records import control_record
from sparklog.node.metadata_log.machine.snapshot_batches import (
    BATCH_BYTES,
    DamagedSnapshotError,
    MetadataSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.builder import build_batch
from sparklog.protocol.types import SnapshotId
from tests.unit.sparklog.node.metadata.images import image_with_partitions, images

VOTERS = VoterSet.of(
    Voter(VoterKey(node_id, UUID(int=node_id + 10)), "127.0.0.1", 9000 + node_id) for node_id in range(3)
)
SMALL = MetadataSnapshot(image_with_partitions(5), VOTERS, 1_700_000_000_000)


@given(images().map(lambda image: MetadataSnapshot(image, VOTERS, 5)))
def test_snapshot_of_any_image_is_read_as_it_was_written(snapshot: MetadataSnapshot) -> None:
    """Image, voters and time come back, under the id that the file has."""
    assert decode_snapshot(snapshot.snapshot_id, encode_snapshot(snapshot)) == snapshot


def test_snapshot_before_there_are_voters_says_nothing_about_them() -> None:
    """A log that has not named voters is not to be said to have an empty set of them."""
    snapshot = SMALL._replace(voters=None)
    assert decode_snapshot(snapshot.snapshot_id, encode_snapshot(snapshot)) == snapshot


def test_snapshot_of_a_large_image_lies_in_bounded_batches_without_gaps() -> None:
    """Who reads one holds a batch at a time, and Kafka takes none above 8 MiB."""
    snapshot = MetadataSnapshot(image_with_partitions(20_000), VOTERS, 5)
    batches = list(encode_snapshot(snapshot))
    headers = [read_header(batch) for batch in batches]
    assert len(batches) == 5
    assert all(len(batch) < BATCH_BYTES * 1.1 for batch in batches)
    assert [header.base_offset for header in headers[1:]] == [header.next_offset for header in headers[:-1]]
    assert {header.partition_leader_epoch for header in headers} == {snapshot.image.leader_epoch}
    assert [header.is_control for header in headers] == [True, False, False, False, True]


def test_snapshot_with_one_huge_record_gives_it_a_batch_of_its_own() -> None:
    """A configuration value may be large; it is not cut."""
    large = ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="t", name="a", value="v" * (2 * BATCH_BYTES)
    )
    small = ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name="b", value="1")
    image, _ = replay_records(EMPTY_IMAGE, [large, small], 1, 1)
    snapshot = MetadataSnapshot(image, None, 5)
    batches = list(encode_snapshot(snapshot))
    assert [read_header(batch).record_count for batch in batches] == [1, 1, 1, 1]
    assert decode_snapshot(snapshot.snapshot_id, batches) == snapshot


def test_snapshot_with_a_flipped_bit_is_refused_wherever_it_is() -> None:
    """Whatever a disk or a wire does to a snapshot, no wrong image comes out of it."""
    batches = list(encode_snapshot(SMALL))
    for number, batch in enumerate(batches):
        for bit in range(8 * len(batch)):
            damaged = bytearray(batch)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(DamagedSnapshotError) as refused:
                decode_snapshot(
                    SMALL.snapshot_id, [*batches[:number], bytes(damaged), *batches[number + 1 :]]
                )
            assert refused.value.error_code is ErrorCode.corrupt_message
            assert str(SMALL.snapshot_id) in refused.value.message


@pytest.mark.parametrize("dropped", [slice(0, 0), slice(0, 1), slice(0, 2), slice(1, 3)])
def test_snapshot_that_lacks_a_batch_is_refused(dropped: slice) -> None:
    """A file that was cut, or whose middle was lost, must not pass for the cluster's metadata."""
    batches = list(encode_snapshot(SMALL))
    assert len(batches) == 3
    with pytest.raises(DamagedSnapshotError):
        decode_snapshot(SMALL.snapshot_id, batches[dropped])


def test_snapshot_with_something_behind_its_footer_is_refused() -> None:
    """Two writers in one file, or a download put together wrongly."""
    batches = list(encode_snapshot(SMALL))
    with pytest.raises(DamagedSnapshotError, match="follow its footer"):
        decode_snapshot(SMALL.snapshot_id, [*batches, batches[-1]])


def test_snapshot_without_a_header_is_refused() -> None:
    """Good batches alone are a log, not a snapshot."""
    record = control_record(SnapshotFooterRecord(version=0), 1)
    footer = build_batch([record], base_offset=0, leader_epoch=4, control=True)
    with pytest.raises(DamagedSnapshotError, match="does not begin with a header"):
        decode_snapshot(SnapshotId(6, 4), [footer])


def test_snapshot_under_another_epochs_name_is_refused() -> None:
    """A renamed file would put the image to a place in the log where it does not belong."""
    with pytest.raises(DamagedSnapshotError, match="leader epoch 4"):
        decode_snapshot(SnapshotId(6, 3), encode_snapshot(SMALL))


def test_snapshot_of_control_records_alone_holds_the_offset() -> None:
    """A young cluster may have nothing but a leader."""
    image, _ = replay_records(EMPTY_IMAGE, [FeatureLevelRecord(name="gone", feature_level=0)], 3, 2)
    snapshot = MetadataSnapshot(image, VOTERS, 7)
    assert decode_snapshot(SnapshotId(4, 2), encode_snapshot(snapshot)) == snapshot
