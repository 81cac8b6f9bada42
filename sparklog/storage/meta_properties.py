"""`meta.properties`: whose data directory this is (cluster, broker, directory), version 1 of the file.

Rule kept: a directory's identity is written once, when it is formatted, and never changed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import javaproperties

from sparklog.errors import ErrorCode, KafkaError
from sparklog.storage.files import decode_uuid, encode_uuid, replace_file, storage_errors

META_PROPERTIES: Final = "meta.properties"
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a data directory (KIP-631, KIP-858)."""

    cluster_id: str
    node_id: int
    directory_id: UUID


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """Return the identity of `directory`, or None when it has not been formatted.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR: the file cannot be read, or does not say what it must.
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
        )
    except KeyError as error:
        raise _malformed(path, f"{error.args[0]} is missing") from error
    except ValueError as error:
        raise _malformed(path, str(error)) from error
    if not meta.cluster_id or meta.node_id < 0:
        raise _malformed(path, f"cluster.id {meta.cluster_id!r}, node.id {meta.node_id}")
    return meta


def write_meta_properties(directory: Path, meta: MetaProperties) -> None:
    """Write the identity of `directory`; it is on the disk on return.

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
    with storage_errors(f"write {path}"):
        replace_file(path, javaproperties.dumps(properties, timestamp=False).encode("iso-8859-1"))


def _malformed(path: Path, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.kafka_storage_error, f"{path} is malformed: {reason}")
