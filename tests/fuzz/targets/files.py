"""The small files of data directories, which a disk may damage: the first byte says which of them it is."""

import atexit
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crc32c import crc32c

from sparklog.executor.api.listeners.client_listeners import PORTS_FILE, read_ports_file
from sparklog.executor.metadata.quorum_state_file import QUORUM_STATE, read_election, write_election
from sparklog.node.storage.checkpoints import (
    CorruptCheckpointError,
    read_leader_epochs,
    read_offsets,
    read_topic_id,
    write_leader_epochs,
    write_offsets,
    write_topic_id,
)
from sparklog.node.storage.directory.meta_properties import (
    META_PROPERTIES,
    read_meta_properties,
    write_meta_properties,
)
from sparklog.node.storage.directory.running_marker import RUNNING_MARKER, read_marker
from sparklog.node.storage.producers.producer_snapshots import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
)
from sparklog.protocol.errors import KafkaError
from tests.fuzz.finding import expect
from tests.fuzz.pieces import kind_of
from tests.fuzz.targets import Target

NOW_MS = 1_700_000_000_000
KINDS = (
    "producers",
    "producers, with the checksum of what they are",
    "offsets",
    "leader epochs",
    "topic id",
    "meta.properties",
    "quorum-state",
    "running marker",
    "former ports",
)


def target() -> Target:
    shared = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="fuzz", dir=shared if shared.is_dir() else None))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)

    def take(data: bytes) -> None:
        kind, content = kind_of(data, len(KINDS))
        if kind < 2:
            _producers(content, is_repaired=kind == 1)
        else:
            _FILES[kind - 2](directory, content)

    return take


def _producers(content: bytes, *, is_repaired: bool) -> None:
    if is_repaired and len(content) >= 6:
        content = content[:2] + struct.pack(">I", crc32c(content[6:])) + content[6:]
    try:
        states = decode_snapshot(content, NOW_MS)
    except CorruptSnapshotError:
        return
    written = encode_snapshot(states.capture())
    again = encode_snapshot(decode_snapshot(written, NOW_MS).capture())
    expect(again == written, "producers are read to something else")


def _round_trip(
    name: str, read: Callable[[Path], Any], write: Callable[[Path, Any], None], error_type: type[Exception]
) -> Callable[[Path, bytes], None]:
    """Read a file, write what it says, and read it: it must say the same."""

    def take(directory: Path, content: bytes) -> None:
        path = directory / name
        path.write_bytes(content)
        try:
            said = read(path)
        except error_type:
            return
        write(path, said)
        try:
            expect(read(path) == said, f"{name} is read to something else")
        finally:
            for left in directory.iterdir():
                left.unlink()

    return take


def _marker(directory: Path, content: bytes) -> None:
    (directory / RUNNING_MARKER).write_bytes(content)
    read_marker(directory)


def _ports(directory: Path, content: bytes) -> None:
    (directory / PORTS_FILE).write_bytes(content)
    read_ports_file(directory)


_FILES: tuple[Callable[[Path, bytes], None], ...] = (
    _round_trip("offsets", read_offsets, write_offsets, CorruptCheckpointError),
    _round_trip(
        "epochs",
        read_leader_epochs,
        lambda path, said: write_leader_epochs(path, said, sync=False),
        CorruptCheckpointError,
    ),
    _round_trip("topic", read_topic_id, write_topic_id, CorruptCheckpointError),
    _round_trip(
        META_PROPERTIES,
        lambda path: read_meta_properties(path.parent),
        lambda path, said: write_meta_properties(path.parent, said),
        KafkaError,
    ),
    _round_trip(
        QUORUM_STATE,
        lambda path: read_election(path.parent),
        lambda path, said: write_election(path.parent, said),
        KafkaError,
    ),
    _marker,
    _ports,
)
