"""`meta.properties`: the identity of a data directory (cluster, broker, directory), version 1 of the file.

Rules kept: a directory's identity is written once, when it is formatted, and never changed. It has a
checksum, under a key that Kafka does not know: one wrong character would make it another identity. So has the
number of ids that each rack of the cluster was given at its first start: a driver, which keeps nothing
itself, counts the ids of brokers by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import javaproperties
from crc32c import crc32c

from sparklog.node.storage.files import decode_uuid, encode_uuid, replace_file, storage_errors
from sparklog.protocol.errors import ErrorCode, KafkaError

META_PROPERTIES: Final = "meta.properties"
_VERSION: Final = "1"
_CHECKSUM: Final = "sparklog.crc32c"
_IDS_PER_RACK: Final = "sparklog.ids.per.rack"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a data directory (KIP-631, KIP-858)."""

    cluster_id: str
    node_id: int
    directory_id: UUID
    ids_per_rack: int | None = None
    """The brokers of each rack whose ids are counted rack by rack; None in older directories."""


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """Return the identity of `directory`, or None if it is not formatted.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR: the file cannot be read, or is malformed.
    """
    path = directory / META_PROPERTIES
    try:
        properties = javaproperties.loads(path.read_text(encoding="iso-8859-1"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _malformed(path, str(error)) from error
    if properties.get("version") != _VERSION:
        raise _malformed(path, f"version is {properties.get('version')}, not {_VERSION}")
    try:
        meta = MetaProperties(
            properties["cluster.id"],
            int(properties["node.id"]),
            decode_uuid(properties["directory.id"]),
            int(properties[_IDS_PER_RACK]) if _IDS_PER_RACK in properties else None,
        )
    except KeyError as error:
        raise _malformed(path, f"{error.args[0]} is missing") from error
    except ValueError as error:
        raise _malformed(path, str(error)) from error
    if not meta.cluster_id or meta.node_id < 0:
        raise _malformed(path, f"cluster.id {meta.cluster_id!r}, node.id {meta.node_id}")
    if meta.ids_per_rack is not None and meta.ids_per_rack < 1:
        raise _malformed(path, f"{_IDS_PER_RACK} {meta.ids_per_rack}")
    if properties.get(_CHECKSUM, _checksum(properties)) != _checksum(properties):
        raise _malformed(path, f"its {_CHECKSUM} does not match the other lines: one of them has changed")
    return meta


def write_meta_properties(directory: Path, meta: MetaProperties) -> None:
    """Write the identity of `directory`; it is on the disk when this returns.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    path = directory / META_PROPERTIES
    properties = {
        "cluster.id": meta.cluster_id,
        "directory.id": encode_uuid(meta.directory_id),
        "node.id": str(meta.node_id),
        "version": _VERSION,
    }
    if meta.ids_per_rack is not None:
        properties[_IDS_PER_RACK] = str(meta.ids_per_rack)
    properties[_CHECKSUM] = _checksum(properties)
    with storage_errors(f"write {path}"):
        replace_file(path, javaproperties.dumps(properties, timestamp=False).encode("iso-8859-1"))


def _checksum(properties: Mapping[str, str]) -> str:
    others = (f"{key}={value}\n" for key, value in sorted(properties.items()) if key != _CHECKSUM)
    return f"{crc32c(''.join(others).encode()):08x}"


def _malformed(path: Path, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.kafka_storage_error, f"{path} is malformed: {reason}")
