"""Batches and record strategies that several tests of the records package share."""

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import strategies as st

from sparklog.protocol.records.builder import SimpleRecord
from sparklog.protocol.records.codecs import Codec

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

JAVA_RECORDS = (
    SimpleRecord(b"k1", b"value one", (), 1_700_000_000_000, 7),
    SimpleRecord(None, b"", (), 1_700_000_000_123, 8),
    SimpleRecord(b"k3", None, (("h", b"x"), ("leer", None)), 1_699_999_999_999, 9),
    SimpleRecord(b"", b"abcdefgh" * 20, (), 1_700_000_000_000, 10),
)
"""What JAVA_BATCHES hold."""

JAVA_BATCHES = {
    Codec.NONE: bytes.fromhex(
        "00000000000000070000010700000003028d6336680000000000030000018bcfe568000000018bcfe5687bffffffffff"
        "ffffffffffffffffff0000000422000000046b311276616c7565206f6e65000e00f6010201000024000104046b330104"
        "02680278086c65657201ce0200000600c002616263646566676861626364656667686162636465666768616263646566"
        "676861626364656667686162636465666768616263646566676861626364656667686162636465666768616263646566"
        "676861626364656667686162636465666768616263646566676861626364656667686162636465666768616263646566"
        "6768616263646566676861626364656667686162636465666768616263646566676800"
    ),
    Codec.GZIP: bytes.fromhex(
        "00000000000000070000008500000003028c7e6dde0001000000030000018bcfe568000000018bcfe5687bffffffffff"
        "ffffffffffffffffff000000041f8b08000000000000ff5362606060c936142a4bcc294d55c8cf4b65e063f8c6c8c4c8"
        "c0a0c2c0c8c2926dccc8c294c154c191939a5ac4788e8981818de100536252724a6a5a7ac660a519006a762cd6d60000"
        "00"
    ),
    Codec.SNAPPY: bytes.fromhex(
        "0000000000000007000000910000000302f5c3f44f0002000000030000018bcfe568000000018bcfe5687bffffffffff"
        "ffffffffffffffffff0000000482534e415050590000000001000000010000004cd601f03c22000000046b311276616c"
        "7565206f6e65000e00f6010201000024000104046b33010402680278086c65657201ce0200000600c002616263646566"
        "6768fe0800fe08005e08000000"
    ),
    Codec.LZ4: bytes.fromhex(
        "00000000000000070000008800000003022b8182760003000000030000018bcfe568000000018bcfe5687bffffffffff"
        "ffffffffffffffffff0000000404224d1860408248000000ff2e22000000046b311276616c7565206f6e65000e00f601"
        "0201000024000104046b33010402680278086c65657201ce0200000600c0026162636465666768080081506566676800"
        "00000000"
    ),
    Codec.ZSTD: bytes.fromhex(
        "0000000000000007000000830000000302c39d609f0004000000030000018bcfe568000000018bcfe5687bffffffffff"
        "ffffffffffffffffff0000000428b52ffd0058340200e40322000000046b311276616c7565206f6e65000e00f6010201"
        "000024000104046b33010402680278086c65657201ce0200000600c00261626364656667680001005d1955a0010000"
    ),
}
"""JAVA_RECORDS as kafka-clients 4.3.1 writes them: base offset 7, leader epoch 3."""

short_bytes = st.binary(max_size=40) | st.binary(min_size=60, max_size=200)
timestamps = st.integers(0, 2**42)
simple_records = st.builds(
    SimpleRecord,
    key=st.none() | short_bytes,
    value=st.none() | short_bytes,
    headers=st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3).map(
        tuple
    ),
    timestamp_ms=timestamps,
    offset=st.none(),
)
record_lists = st.lists(simple_records, min_size=1, max_size=60)


def as_rows(records: Sequence[SimpleRecord]) -> list[dict[str, object]]:
    """Return the records as `decode_batches` gives them, in the columns a record has itself."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for record in records
    ]
