"""Checkpoint files, epochs' history and the transaction index."""

from pathlib import Path
from uuid import UUID

import pytest

from sparklog.node.storage import checkpoints
from sparklog.node.storage.checkpoints import CorruptCheckpointError
from sparklog.node.storage.files import decode_uuid, encode_uuid
from sparklog.node.storage.index.aborted_transaction import AbortedTransactionEntry
from sparklog.node.storage.index.transaction_index import TransactionIndex
from sparklog.node.storage.machine.leader_epochs import EpochEndOffset, EpochEntry, LeaderEpochs
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import TopicPartition


def test_offsets_have_kafkas_text(tmp_path: Path) -> None:
    """Kafka reads these files, byte for byte."""
    path = tmp_path / "recovery-point-offset-checkpoint"
    offsets = {TopicPartition("a.b-c", 0): 17, TopicPartition("a.b-c", 12): 0}
    assert checkpoints.read_offsets(path) == {}
    checkpoints.write_offsets(path, offsets)
    assert path.read_text() == "0\n2\na.b-c 0 17\na.b-c 12 0\n"
    assert checkpoints.read_offsets(path) == offsets
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, f"{path.name}.crc32c"}


@pytest.mark.parametrize(
    "content",
    [b"", b"1\n0\n", b"0\n1\n", b"0\n1\na 0\n", b"0\n1\na b 1\n", b"0\nx\n", b"\xff\xfe", b"0\n1\na 0 1 2\n"],
)
def test_malformed_offsets_are_named(tmp_path: Path, content: bytes) -> None:
    """A wrong recovery point would skip recovery: better none."""
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match="checkpoint"):
        checkpoints.read_offsets(path)


def test_leader_epochs_have_kafkas_text(tmp_path: Path) -> None:
    """As above, for leader-epoch-checkpoint."""
    path = tmp_path / "leader-epoch-checkpoint"
    checkpoints.write_leader_epochs(path, [EpochEntry(0, 0), EpochEntry(4, 100)], sync=False)
    assert path.read_text() == "0\n2\n0 0\n4 100\n"
    assert checkpoints.read_leader_epochs(path) == [(0, 0), (4, 100)]
    path.write_text("0\n1\na 1\n")
    with pytest.raises(CorruptCheckpointError):
        checkpoints.read_leader_epochs(path)


def test_partition_metadata_has_kafkas_text(tmp_path: Path) -> None:
    """As above, for partition.metadata."""
    path = tmp_path / "partition.metadata"
    topic_id = UUID("b5435077-bc3c-4124-bd2c-b98876d532a1")
    assert checkpoints.read_topic_id(path) is None
    checkpoints.write_topic_id(path, topic_id)
    kafkas = f"version: 0\ntopic_id: {encode_uuid(topic_id)}"
    assert path.read_text().startswith(f"{kafkas}\ncrc32c: "), "Kafka reads no third line"
    assert checkpoints.read_topic_id(path) == topic_id
    path.write_text(kafkas)
    assert checkpoints.read_topic_id(path) == topic_id
    path.write_text("version: 0\n")
    with pytest.raises(CorruptCheckpointError):
        checkpoints.read_topic_id(path)


def test_uuid_text_round_trips() -> None:
    """Ids with - and _ in them are the ones that go wrong."""
    for value in (UUID(int=1), UUID(int=2**128 - 1), UUID(bytes=b"\xfb\xef\xbe" * 5 + b"\xff")):
        assert decode_uuid(encode_uuid(value)) == value
    with pytest.raises(ValueError, match=r"\S"):
        decode_uuid("too short")


def test_leader_epochs_answer_like_kafka() -> None:
    """The corner cases of OffsetForLeaderEpoch decide where a follower truncates."""
    epochs = LeaderEpochs([EpochEntry(2, 10), EpochEntry(5, 20), EpochEntry(6, 30)])
    assert epochs.end_offset_for(1, 40) == EpochEndOffset(1, 10)
    assert epochs.end_offset_for(2, 40) == EpochEndOffset(2, 20)
    assert epochs.end_offset_for(4, 40) == EpochEndOffset(2, 20)
    assert epochs.end_offset_for(6, 40) == EpochEndOffset(6, 40)
    assert epochs.end_offset_for(7, 40) is None
    assert LeaderEpochs().end_offset_for(0, 40) is None
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [None, 2, 2, 5, 6]


def test_leader_epochs_assign_drops_what_contradicts() -> None:
    """A history that is not monotonic answers nonsense."""
    epochs = LeaderEpochs([EpochEntry(2, 10), EpochEntry(5, 20)])
    assert not epochs.assign(5, 25)
    assert epochs.assign(6, 20)
    assert epochs.entries == ((2, 10), (6, 20))
    assert epochs.assign(3, 15)
    assert (epochs.entries, epochs.latest) == (((2, 10), (3, 15)), 3)


def test_leader_epochs_truncate_at_both_ends() -> None:
    """The history covers exactly the log."""
    epochs = LeaderEpochs([EpochEntry(2, 10), EpochEntry(5, 20), EpochEntry(6, 30)])
    assert epochs.truncate_from_end(30)
    assert not epochs.truncate_from_end(21)
    assert epochs.truncate_from_start(25)
    assert not epochs.truncate_from_start(25)
    assert not epochs.truncate_from_start(5)
    assert (epochs.entries, epochs.latest) == (((5, 25),), 5)


def test_transaction_index_keeps_whole_entries(tmp_path: Path) -> None:
    """A torn entry at the end is a crash's, not a transaction."""
    path = tmp_path / "00000000000000000000.txnindex"
    index = TransactionIndex(tmp_path, 0, ".txnindex")
    assert (index.overlapping(0, 100), index.last_offset()) == (([], False), None)
    assert not path.exists()
    entries = [AbortedTransactionEntry(1, 0, 9, 5), AbortedTransactionEntry(2, 5, 20, 21)]
    for entry in entries:
        index.append(entry)
    assert path.stat().st_size == 68
    with path.open("ab") as file:
        file.write(b"\x00\x00\x01")
    index = TransactionIndex(tmp_path, 0, ".txnindex")
    index.load()
    assert (index.overlapping(0, 100), index.last_offset()) == ((entries, False), 20)
    assert index.overlapping(0, 5) == (entries[:1], True), "all below 5 was over with the first"
    assert index.overlapping(10, 21) == (entries[1:], True)
    index.truncate_to(20)
    assert index.overlapping(0, 100) == (entries[:1], False)
    assert path.stat().st_size == 34
    path.write_bytes(b"\x00\x07" + bytes(32))
    with pytest.raises(KafkaError, match="version 7"):
        index.overlapping(0, 100)
