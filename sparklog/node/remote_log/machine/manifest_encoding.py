"""A manifest as the bytes of an object: JSON, compressed with zstd.

`format` rises with each change that an older reader would misunderstand; a reader refuses a format that it
does not know, since a writer that drops what it does not understand would lose records.
"""

import json
from dataclasses import fields
from typing import Any, Final
from uuid import UUID

import zstandard

from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest, RemoteSegment

MANIFEST_FORMAT: Final = 1

_MANIFEST_FIELDS: Final = tuple(field.name for field in fields(Manifest))
_SEGMENT_FIELDS: Final = tuple(field.name for field in fields(RemoteSegment))
_LARGEST_BYTES: Final = 1 << 30
"""Bound of a decompressed manifest, against damaged sizes."""


class ManifestFormatError(Exception):
    """An object that is no manifest, or one of a format that this version does not read."""


def encode_manifest(manifest: Manifest) -> bytes:
    content: dict[str, Any] = {name: getattr(manifest, name) for name in _MANIFEST_FIELDS}
    content["format"] = MANIFEST_FORMAT
    content["topic_id"] = str(manifest.topic_id)
    content["segments"] = [
        [getattr(segment, name) for name in _SEGMENT_FIELDS] for segment in manifest.segments
    ]
    content["segment_fields"] = _SEGMENT_FIELDS
    text = json.dumps(content, separators=(",", ":"))
    return zstandard.ZstdCompressor(write_checksum=True).compress(text.encode())


def decode_manifest(name: str, data: bytes) -> Manifest:
    """Return the manifest in the object `name`.

    Raises:
        ManifestFormatError: it is damaged, or of an unknown format.
    """
    try:
        if zstandard.frame_content_size(data) > _LARGEST_BYTES:
            raise ValueError(f"it would have more than {_LARGEST_BYTES} bytes")
        text = zstandard.ZstdDecompressor().decompress(data, max_output_size=_LARGEST_BYTES)
        content = json.loads(text)
        found = content.pop("format")
    except (zstandard.ZstdError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestFormatError(
            f"{name} in the object store is no manifest of a partition ({error}): it is damaged, or another "
            "program has written below sparklog.remote.uri"
        ) from error
    if found != MANIFEST_FORMAT:
        raise ManifestFormatError(
            f"{name} in the object store has format {found}, and this version of sparklog reads "
            f"{MANIFEST_FORMAT}: use the version that wrote it, or a later one"
        )
    try:
        return _manifest(content)
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestFormatError(f"{name} in the object store is a damaged manifest: {error!r}") from error


def _manifest(content: dict[str, Any]) -> Manifest:
    names = content.pop("segment_fields")
    segments = tuple(
        RemoteSegment(**dict(zip(names, values, strict=True))) for values in content.pop("segments")
    )
    epochs = tuple(EpochStart(*entry) for entry in content.pop("leader_epochs"))
    return Manifest(
        **{
            **content,
            "topic_id": UUID(content["topic_id"]),
            "segments": segments,
            "leader_epochs": epochs,
            "unreferenced": tuple(content["unreferenced"]),
        }
    )
