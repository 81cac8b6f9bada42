"""Topics that a group of the classic protocol reads: the beginning of its members' metadata.

The coordinator parses members' metadata only for this, to keep offsets of subscribed topics. The first
version is a prefix of all later ones: int16 version, then an array of strings.

Parsing blocks the loop, and a member may send as many names as fit into a request: beyond `MAX_NAMES` the
group's topics count as unknown, and none of its offsets expire or can be deleted.

Source: Kafka's ConsumerProtocol and ConsumerProtocolSubscription.json.
"""

import struct
from collections.abc import Iterable, Set
from typing import Final

_HEAD: Final = struct.Struct(">hi")
_VERSION_BYTES: Final = 2
_LENGTH: Final = struct.Struct(">h")
MAX_NAMES: Final = 20_000
"""The most names parsed for a group: some 10 ms. Consecutive equal subscriptions are parsed once."""


def subscribed_topics(subscriptions: Iterable[bytes]) -> Set[str] | None:
    """Return the topics of all subscriptions; None if one is malformed, or there are too many names.

    >>> one = b"\\0\\1" b"\\0\\0\\0\\2" b"\\0\\1a" b"\\0\\1b" b"\\xff\\xff\\xff\\xff"
    >>> other = b"\\0\\0" b"\\0\\0\\0\\1" b"\\0\\1c"
    >>> sorted(subscribed_topics([one, other]))
    ['a', 'b', 'c']
    >>> subscribed_topics([one, b"something else"]) is None
    True
    """
    topics: set[str] = set()
    left = MAX_NAMES
    names = b""
    try:
        for metadata in subscriptions:
            version, count = _HEAD.unpack_from(metadata)
            if version < 0 or count < 0:
                return None
            if names and metadata.startswith(names, _VERSION_BYTES):
                continue
            left -= count
            if left < 0:
                return None
            position = _HEAD.size
            for _ in range(count):
                (length,) = _LENGTH.unpack_from(metadata, position)
                position += _LENGTH.size
                if length < 0 or position + length > len(metadata):
                    return None
                topics.add(metadata[position : position + length].decode())
                position += length
            names = metadata[_VERSION_BYTES:position]
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
