"""Manifests as bytes."""

import json
from uuid import UUID

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest, RemoteSegment
from sparklog.node.remote_log.machine.manifest_encoding import (
    ManifestFormatError,
    decode_manifest,
    encode_manifest,
)
from tests.unit.sparklog.node.remote_log.machine.manifests import manifest_with

NUMBERS = st.integers(-1, 2**63 - 1)
NAMES = st.text(max_size=20)
SEGMENTS = st.builds(
    RemoteSegment, NAMES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS
)
MANIFESTS = st.builds(
    Manifest,
    topic=NAMES,
    topic_id=st.uuids(),
    partition=NUMBERS,
    owner_epoch=NUMBERS,
    leader_epoch=NUMBERS,
    log_start_offset=NUMBERS,
    end_offset=NUMBERS,
    segments=st.lists(SEGMENTS, max_size=4).map(tuple),
    leader_epochs=st.lists(st.builds(EpochStart, NUMBERS, NUMBERS), max_size=4).map(tuple),
    producers=st.none() | NAMES,
    unreferenced=st.lists(NAMES, max_size=3).map(tuple),
    written_ms=NUMBERS,
)


@given(MANIFESTS)
def test_manifest_is_the_same_after_a_round_trip(manifest: Manifest) -> None:
    """A restored cluster has nothing else to go by."""
    assert decode_manifest("manifests/x/0", encode_manifest(manifest)) == manifest


def test_manifest_in_its_first_format_is_read() -> None:
    """What is in a bucket today is read by every later version."""
    content = {
        "format": 1,
        "topic": "orders",
        "topic_id": "00000000-0000-0000-0000-000000000007",
        "partition": 3,
        "owner_epoch": 1,
        "leader_epoch": 2,
        "log_start_offset": 0,
        "end_offset": 10,
        "segment_fields": [
            "name",
            "base_offset",
            "end_offset",
            "record_count",
            "size_bytes",
            "raw_bytes",
            "first_timestamp_ms",
            "max_timestamp_ms",
            "crc32c",
        ],
        "segments": [["segment-0", 0, 10, 10, 50, 100, 0, 10, 0]],
        "leader_epochs": [[0, 0]],
        "producers": "producers",
        "unreferenced": [],
        "written_ms": 0,
    }
    data = zstandard.compress(json.dumps(content).encode())
    manifest = decode_manifest("manifests/x/3", data)
    assert manifest == manifest_with(10)
    assert manifest.topic_id == UUID(int=7)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is no manifest"),
        (b"not zstd at all", "is no manifest"),
        (zstandard.compress(b"[1]"), "is no manifest"),
        (zstandard.compress(b'{"format": 2}'), "has format 2"),
        (zstandard.compress(b'{"format": 1}'), "is a damaged manifest"),
    ],
)
def test_other_bytes_are_refused_by_name(data: bytes, message: str) -> None:
    """A writer that drops what it does not understand would lose records."""
    with pytest.raises(ManifestFormatError, match=f"manifests/x/3 in the object store {message}"):
        decode_manifest("manifests/x/3", data)


def test_damaged_byte_is_noticed() -> None:
    """The frame has a checksum."""
    data = bytearray(encode_manifest(manifest_with(10)))
    data[-1] ^= 1
    with pytest.raises(ManifestFormatError):
        decode_manifest("manifests/x/3", bytes(data))
