"""Coordinators' records in bytes. The golden bytes were written by Kafka 4.3.1's own message classes."""

import contextlib
import dataclasses
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.executor.coordinators.records.consumer_offsets import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    TargetTopicPartitions,
)
from sparklog.executor.coordinators.records.framing import (
    CONSUMER_OFFSETS_RECORDS,
    TRANSACTION_STATE_RECORDS,
    MalformedCoordinatorRecordError,
    RecordTypes,
    UnknownRecordTypeError,
    UnknownRecordVersionError,
    encode_key,
    encode_value,
)
from sparklog.executor.coordinators.records.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

TOPIC_ID: Final = UUID("01234567-89ab-cdef-8899-aabbccddeeff")
TIME_MS: Final = 1_700_000_000_000

MEMBER: Final = ConsumerGroupMemberMetadataValue(
    instance_id=None,
    rack_id="a",
    client_id="c",
    client_host="/127.0.0.1",
    subscribed_topic_names=("flights", "ships"),
    subscribed_topic_regex="f.*",
    rebalance_timeout_ms=45000,
    server_assignor="uniform",
)
ONGOING: Final = TransactionLogValue(
    producer_id=4000,
    producer_epoch=12,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=(PartitionsSchema(topic="flights", partition_ids=(0, 2)),),
    transaction_last_update_timestamp_ms=TIME_MS + 1,
    transaction_start_timestamp_ms=TIME_MS,
)

KEYS: Final = [
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        OffsetCommitKey(group="größe", topic="flights", partition=7),
        "000100076772c3b6c39f650007666c696768747300000007",
        id="offset_commit_key",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS, GroupMetadataKey(group="g"), "0002000167", id="group_metadata_key"
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupMetadataKey(group_id="g"),
        "0003000167",
        id="consumer_group_metadata_key",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="c-1"),
        "00050001670003632d31",
        id="consumer_group_member_metadata_key",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        "0006000167",
        id="consumer_group_target_assignment_metadata_key",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="c-1"),
        "00070001670003632d31",
        id="consumer_group_target_assignment_member_key",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="c-1"),
        "00080001670003632d31",
        id="consumer_group_current_member_assignment_key",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="f.*"),
        "00100001670003662e2a",
        id="consumer_group_regular_expression_key",
    ),
    pytest.param(
        TRANSACTION_STATE_RECORDS,
        TransactionLogKey(transactional_id="copier"),
        "00000006636f70696572",
        id="transaction_log_key",
    ),
]
VALUES: Final = [
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        GroupMetadataKey(group="g"),
        GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=()),
        3,
        "0003000000000000ffffffffffffffffffffffff00000000",
        id="group_metadata_value_empty_3",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupMetadataValue(epoch=4, metadata_hash=-77),
        0,
        "000000000004010008ffffffffffffffb3",
        id="consumer_group_metadata_value_0",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="c-1"),
        MEMBER,
        0,
        "000000026102630b2f3132372e302e302e310308666c696768747306736869707304662e2a0000afc808756e"
        "69666f726d00",
        id="consumer_group_member_metadata_value_0",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="c-1"),
        dataclasses.replace(
            MEMBER,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=10000,
                supported_protocols=(ClassicProtocol(name="range", metadata=b"\0\3"),),
            ),
        ),
        0,
        "000000026102630b2f3132372e302e302e310308666c696768747306736869707304662e2a0000afc808756e"
        "69666f726d0100110100002710020672616e67650300030000",
        id="consumer_group_member_metadata_value_classic_0",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4, assignment_timestamp=TIME_MS),
        0,
        "0000000000040100080000018bcfe56800",
        id="consumer_group_target_assignment_metadata_value_0",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="c-1"),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(TargetTopicPartitions(topic_id=TOPIC_ID, partitions=(0, 2)),)
        ),
        0,
        "0000020123456789abcdef8899aabbccddeeff0300000000000000020000",
        id="consumer_group_target_assignment_member_value_0",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="c-1"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=4,
            previous_member_epoch=3,
            state=1,
            assigned_partitions=(
                CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=(0, 2), assignment_epochs=(4, 3)),
            ),
            partitions_pending_revocation=(CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=(1,)),),
        ),
        0,
        "0000000000040000000301020123456789abcdef8899aabbccddeeff03000000000000000201000903000000"
        "0400000003020123456789abcdef8899aabbccddeeff02000000010000",
        id="consumer_group_current_member_assignment_value_0",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="f.*"),
        ConsumerGroupRegularExpressionValue(topics=("flights",), version=99, timestamp=TIME_MS),
        0,
        "00000208666c696768747300000000000000630000018bcfe5680000",
        id="consumer_group_regular_expression_value_0",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        OffsetCommitKey(group="größe", topic="flights", partition=7),
        OffsetCommitValue(offset=1 << 40, metadata="größe", commit_timestamp=TIME_MS),
        0,
        "0000000001000000000000076772c3b6c39f650000018bcfe56800",
        id="offset_commit_value_0",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=3,
            protocol="range",
            leader="c-1",
            members=(
                MemberMetadata(
                    member_id="c-1",
                    client_id="c",
                    client_host="/127.0.0.1",
                    session_timeout=45000,
                    subscription=b"\1\2\3",
                    assignment=b"",
                ),
            ),
        ),
        0,
        "00000008636f6e73756d657200000003000572616e67650003632d31000000010003632d31000163000a2f31"
        "32372e302e302e310000afc80000000301020300000000",
        id="group_metadata_value_0",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        OffsetCommitKey(group="größe", topic="flights", partition=7),
        OffsetCommitValue(
            offset=1 << 40, metadata="größe", commit_timestamp=TIME_MS, expire_timestamp=TIME_MS + 9000
        ),
        1,
        "0001000001000000000000076772c3b6c39f650000018bcfe568000000018bcfe58b28",
        id="offset_commit_value_1",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=3,
            protocol="range",
            leader="c-1",
            members=(
                MemberMetadata(
                    member_id="c-1",
                    rebalance_timeout=300_000,
                    client_id="c",
                    client_host="/127.0.0.1",
                    session_timeout=45000,
                    subscription=b"\1\2\3",
                    assignment=b"",
                ),
            ),
        ),
        1,
        "00010008636f6e73756d657200000003000572616e67650003632d31000000010003632d31000163000a2f31"
        "32372e302e302e31000493e00000afc80000000301020300000000",
        id="group_metadata_value_1",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        OffsetCommitKey(group="größe", topic="flights", partition=7),
        OffsetCommitValue(offset=1 << 40, metadata="größe", commit_timestamp=TIME_MS),
        2,
        "0002000001000000000000076772c3b6c39f650000018bcfe56800",
        id="offset_commit_value_2",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=3,
            protocol="range",
            leader="c-1",
            current_state_timestamp=TIME_MS,
            members=(
                MemberMetadata(
                    member_id="c-1",
                    rebalance_timeout=300_000,
                    client_id="c",
                    client_host="/127.0.0.1",
                    session_timeout=45000,
                    subscription=b"\1\2\3",
                    assignment=b"",
                ),
            ),
        ),
        2,
        "00020008636f6e73756d657200000003000572616e67650003632d310000018bcfe56800000000010003632d"
        "31000163000a2f3132372e302e302e31000493e00000afc80000000301020300000000",
        id="group_metadata_value_2",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        OffsetCommitKey(group="größe", topic="flights", partition=7),
        OffsetCommitValue(offset=1 << 40, metadata="größe", commit_timestamp=TIME_MS, leader_epoch=9),
        3,
        "000300000100000000000000000900076772c3b6c39f650000018bcfe56800",
        id="offset_commit_value_3",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=3,
            protocol="range",
            leader="c-1",
            current_state_timestamp=TIME_MS,
            members=(
                MemberMetadata(
                    member_id="c-1",
                    group_instance_id="i",
                    rebalance_timeout=300_000,
                    client_id="c",
                    client_host="/127.0.0.1",
                    session_timeout=45000,
                    subscription=b"\1\2\3",
                    assignment=b"",
                ),
            ),
        ),
        3,
        "00030008636f6e73756d657200000003000572616e67650003632d310000018bcfe56800000000010003632d"
        "31000169000163000a2f3132372e302e302e31000493e00000afc80000000301020300000000",
        id="group_metadata_value_3",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        OffsetCommitKey(group="größe", topic="flights", partition=7),
        OffsetCommitValue(
            offset=1 << 40, metadata="größe", commit_timestamp=TIME_MS, leader_epoch=9, topic_id=TOPIC_ID
        ),
        4,
        "0004000001000000000000000009086772c3b6c39f650000018bcfe568000100100123456789abcdef8899aabbccddeeff",
        id="offset_commit_value_4",
    ),
    pytest.param(
        CONSUMER_OFFSETS_RECORDS,
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=3,
            protocol="range",
            leader="c-1",
            current_state_timestamp=TIME_MS,
            members=(
                MemberMetadata(
                    member_id="c-1",
                    group_instance_id="i",
                    rebalance_timeout=300_000,
                    client_id="c",
                    client_host="/127.0.0.1",
                    session_timeout=45000,
                    subscription=b"\1\2\3",
                    assignment=b"",
                ),
            ),
        ),
        4,
        "000409636f6e73756d6572000000030672616e676504632d310000018bcfe568000204632d31026902630b2f"
        "3132372e302e302e31000493e00000afc804010203010000",
        id="group_metadata_value_4",
    ),
    pytest.param(
        TRANSACTION_STATE_RECORDS,
        TransactionLogKey(transactional_id="copier"),
        ONGOING,
        0,
        "00000000000000000fa0000c0000ea6001000000010007666c69676874730000000200000000000000020000"
        "018bcfe568010000018bcfe56800",
        id="transaction_log_value_0",
    ),
    pytest.param(
        TRANSACTION_STATE_RECORDS,
        TransactionLogKey(transactional_id="copier"),
        ONGOING,
        1,
        "00010000000000000fa0000c0000ea60010208666c6967687473030000000000000002000000018bcfe56801"
        "0000018bcfe5680000",
        id="transaction_log_value_1",
    ),
    pytest.param(
        TRANSACTION_STATE_RECORDS,
        TransactionLogKey(transactional_id="copier"),
        dataclasses.replace(
            ONGOING,
            previous_producer_id=3999,
            next_producer_id=4001,
            next_producer_epoch=1,
            client_transaction_version=2,
        ),
        1,
        "00010000000000000fa0000c0000ea60010208666c6967687473030000000000000002000000018bcfe56801"
        "0000018bcfe568000400080000000000000f9f01080000000000000fa10202000203020001",
        id="transaction_log_value_tagged_1",
    ),
    pytest.param(
        TRANSACTION_STATE_RECORDS,
        TransactionLogKey(transactional_id="copier"),
        TransactionLogValue(
            producer_id=4000,
            producer_epoch=0,
            transaction_timeout_ms=0,
            transaction_status=0,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=0,
            transaction_start_timestamp_ms=0,
        ),
        1,
        "00010000000000000fa000000000000000000000000000000000000000000000000000",
        id="transaction_log_value_empty_1",
    ),
]


@pytest.mark.parametrize(("types", "key", "golden"), KEYS)
def test_key_golden_bytes_are_kafkas(types: RecordTypes, key: Any, golden: str) -> None:
    """A key in other bytes would be another key to Kafka, and to the cleaner."""
    assert encode_key(key).hex() == golden
    assert types.decode(bytes.fromhex(golden), None) == (key, None)


@pytest.mark.parametrize(("types", "key", "value", "version", "golden"), VALUES)
def test_value_golden_bytes_of_every_version_are_kafkas(
    types: RecordTypes, key: Any, value: Any, version: int, golden: str
) -> None:
    """A topic that any Kafka wrote opens here, and Kafka's tools read what is written here."""
    assert encode_value(value, version).hex() == golden
    assert types.decode(encode_key(key), bytes.fromhex(golden)) == (key, value)


def test_offset_with_a_time_to_expire_is_written_in_the_version_that_has_it() -> None:
    """Clients before OffsetCommit 5 ask for a retention of their own; later versions would forget it."""
    offset = OffsetCommitValue(offset=1, metadata="", commit_timestamp=TIME_MS)
    expiring = dataclasses.replace(offset, expire_timestamp=TIME_MS + 1)
    assert (encode_value(offset)[:2], encode_value(expiring)[:2]) == (b"\0\4", b"\0\1")
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    assert CONSUMER_OFFSETS_RECORDS.decode(encode_key(key), encode_value(expiring)) == (key, expiring)


@pytest.mark.parametrize("record_type", [9, 15, 17, 23, 24, -1])
def test_key_of_a_type_without_a_meaning_here_is_told_apart(record_type: int) -> None:
    """Share and streams groups' records may lie in a topic that Kafka wrote; they are no damage."""
    with pytest.raises(UnknownRecordTypeError):
        CONSUMER_OFFSETS_RECORDS.decode(record_type.to_bytes(2, signed=True) + b"rest", b"\0\0")


def test_value_of_a_newer_version_is_told_apart() -> None:
    """To pass over it would be to forget an offset that was acknowledged."""
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
    with pytest.raises(UnknownRecordVersionError):
        CONSUMER_OFFSETS_RECORDS.decode(key, b"\0\5")


def test_unknown_tagged_field_of_a_value_is_ignored() -> None:
    """Newer versions add nothing but tagged fields, so that older ones go on reading (KIP-915)."""
    value = ConsumerGroupMetadataValue(epoch=4)
    key = ConsumerGroupMetadataKey(group_id="g")
    newer = encode_value(value)[:-1] + bytes.fromhex("010902abcd")
    assert CONSUMER_OFFSETS_RECORDS.decode(encode_key(key), newer) == (key, value)


@given(key=st.binary(max_size=40), value=st.binary(max_size=80))
def test_arbitrary_bytes_are_a_record_or_a_named_error(key: bytes, value: bytes) -> None:
    """Bytes from a disk never raise anything else."""
    for types in (CONSUMER_OFFSETS_RECORDS, TRANSACTION_STATE_RECORDS):
        with contextlib.suppress(
            MalformedCoordinatorRecordError, UnknownRecordTypeError, UnknownRecordVersionError
        ):
            types.decode(key, value)
