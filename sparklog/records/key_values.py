"""The keys and values of a batch's records, and nothing else of them: for logs that are read for these alone.

A third of what whole records cost (`builder.read_records`), without columns and their libraries.
"""

from collections.abc import Iterator

from sparklog.records.batch import HEADER_BYTES, BatchHeader, CorruptBatchError
from sparklog.records.codecs import DEFAULT_DECOMPRESSED_LIMIT_BYTES, Codec, decompress
from sparklog.records.varints import MalformedRecordsError, read_varint

__all__ = ["read_keys_and_values"]


def read_keys_and_values(
    buffer: bytes | memoryview, header: BatchHeader, position: int = 0
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield key and value of each record of the batch at `position`; CRC not checked.

    Raises:
        CorruptBatchError: lengths or counts inside do not add up.
        KafkaError: what `codecs.decompress` raises.
    """
    data = bytes(memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes])
    if header.codec is not Codec.NONE:
        data = bytes(decompress(header.codec, data, DEFAULT_DECOMPRESSED_LIMIT_BYTES))
    at, size = 0, len(data)
    try:
        for _ in range(header.record_count):
            length = data[at]
            if length < 0x80:
                length >>= 1
                at += 1
            else:
                length, at = read_varint(data, at)
            end = at + length
            at += 1  # attributes
            while data[at] >= 0x80:  # the timestamp's delta
                at += 1
            at += 1
            while data[at] >= 0x80:  # the offset's
                at += 1
            length, at = read_varint(data, at + 1)
            if length >= 0:
                key: bytes | None = data[at : at + length]
                at += length
            else:
                key = None
            length, at = read_varint(data, at)
            value = None
            if length >= 0:
                value = data[at : at + length]
                at += length
            if not at < end <= size:
                raise CorruptBatchError(f"a record that begins before position {at} leaves its batch")
            yield key, value
            at = end  # headers are nobody's here
    except IndexError:
        raise CorruptBatchError(f"the records end before {header.record_count} are read") from None
    except MalformedRecordsError as error:
        raise CorruptBatchError(str(error)) from None
    if at != size:
        raise CorruptBatchError(f"{size - at} bytes follow the last record")
