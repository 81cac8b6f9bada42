"""Which topics a consumer of the classic protocol reads: the beginning of its member metadata.

The coordinator looks into members' metadata for this alone, to keep offsets of topics that are read. The
first version is a prefix of all later ones: int16 version, then an array of strings.

Source: Kafka's ConsumerProtocol and ConsumerProtocolSubscription.json.
"""

import struct
from collections.abc import Set
from typing import Final

__all__ = ["subscribed_topics"]

_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> Set[str] | None:
    """Return the topics of a subscription; None for bytes that are none.

    >>> sorted(subscribed_topics(b"\\0\\1" b"\\0\\0\\0\\2" b"\\0\\1a" b"\\0\\1b" b"\\xff\\xff\\xff\\xff"))
    ['a', 'b']
    >>> subscribed_topics(b"something else") is None
    True
    """
    topics = set()
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        position = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
