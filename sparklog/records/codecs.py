"""The five codecs of record batches, in the framings that Kafka's clients use.

Levels follow Kafka's `compression.<codec>.level` settings. Decompression is bounded: a batch that claims
or produces more than `limit_bytes` raises `DecompressionLimitError` before the memory is taken.
"""

from enum import IntEnum

from sparklog.errors import ErrorCode, KafkaError

__all__ = [
    "Codec",
    "CorruptPayloadError",
    "DecompressionLimitError",
    "codec_of",
    "compress",
    "decompress",
]


class Codec(IntEnum):
    """A codec under its number in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptPayloadError(KafkaError):
    """The compressed records of a batch are not what their codec can read."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class DecompressionLimitError(KafkaError):
    """The records of a batch decompress to more than the reader is willing to hold."""

    def __init__(self, codec: Codec, limit_bytes: int) -> None:
        super().__init__(
            ErrorCode.invalid_record,
            f"records compressed with {codec.name.lower()} decompress to more than {limit_bytes} bytes",
        )
        self.limit_bytes = limit_bytes


_CODECS = tuple(Codec)


def codec_of(attributes: int) -> Codec:
    """Return the codec that a batch's attributes name.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE for the unassigned numbers 5 to 7.
    """
    number = attributes & 0x07
    if number >= len(_CODECS):
        raise KafkaError(
            ErrorCode.unsupported_compression_type, f"{number} is not the number of a compression codec"
        )
    return _CODECS[number]


def compress(codec: Codec, payload: bytes | memoryview, level: int | None = None) -> bytes:
    """Return `payload` compressed; `level` None means the codec's own default, as Kafka has it."""
    raise NotImplementedError


def decompress(codec: Codec, payload: bytes | memoryview, limit_bytes: int) -> bytes | memoryview:
    """Return the decompressed `payload`.

    Raises:
        DecompressionLimitError: it would be longer than `limit_bytes`.
        CorruptPayloadError: the codec cannot read it.
    """
    raise NotImplementedError
