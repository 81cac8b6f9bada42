"""Spark's own Kafka connector against our cluster, and our data source beside it on the same topics.

A job moves over by naming another format, so each must read what the other wrote, and must mean the same by
every option.
"""

import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import LocalCluster
from tests.compat.librdkafka import create_topic
from tests.compat.spark_connector_session import (
    CODECS,
    CONNECTOR,
    FORMATS,
    MOVED,
    MOVED_RECORDS_A_BATCH,
    PARTITIONS,
    READS,
    RECORDS_A_CODEC,
    REFUSED,
    SPARKLOG,
    START_MS,
    STREAMED,
    TOPIC,
    Exchange,
    Record,
)

SESSION_TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def exchange(
    cluster: LocalCluster, connector_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Exchange:
    """What one session with both formats saw."""
    for topic in (*TOPIC.values(), STREAMED, *MOVED.values()):
        # The records' times are those of another year: retention would be right to let them go.
        create_topic(cluster.bootstrap_servers, topic, PARTITIONS, config={"retention.ms": "-1"})
    results = tmp_path_factory.mktemp("session") / "exchange"
    session = subprocess.run(
        [
            *(sys.executable, "-m", "tests.compat.spark_connector_session"),
            *(cluster.bootstrap_servers, connector_jars, str(results)),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=SESSION_TIMEOUT_S,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert session.returncode == 0, session.stderr[-4000:]
    return Exchange(**pickle.loads(results.read_bytes()))


def written() -> Counter[tuple[Any, ...]]:
    """Return key, value, headers and timestamp of the rows that each format was given."""
    return Counter(
        (
            f"{codec}-{number % 7}".encode(),
            None if number == 3 else f"{codec}-{'x' * number}{number}".encode(),
            None if number % 2 == 0 else (("n", b"%d" % number), ("none", None)),
            START_MS + number,
        )
        for codec in CODECS
        for number in range(RECORDS_A_CODEC)
    )


def contents(records: list[Record], *, timestamps: bool) -> Counter[tuple[Any, ...]]:
    """Return key, value and headers of records, with timestamps if they are wanted."""
    return Counter(record[3:7] if timestamps else record[3:6] for record in records)


def _but_offset(record: Record) -> tuple[Any, ...]:
    return record[1], *record[3:6]


def partition_of_keys(records: list[Record]) -> dict[bytes, int]:
    """Return which partition each key went to; fails if it went to several."""
    found = {(key, partition) for _, partition, _, key, *_ in records}
    assert len(found) == len({key for key, _ in found})
    return dict(found)


def test_both_formats_have_the_same_columns(exchange: Exchange) -> None:
    """Queries are written against these."""
    assert exchange.schemas[SPARKLOG] == exchange.schemas[CONNECTOR]


@pytest.mark.parametrize("reader", FORMATS)
def test_both_formats_read_what_our_writer_wrote_in_every_codec(exchange: Exchange, reader: str) -> None:
    """Batches that are built from columns must be Kafka's to Kafka's Java consumer, timestamps included."""
    records = exchange.rows[SPARKLOG, reader]
    assert contents(records, timestamps=True) == written()
    assert records == exchange.rows[SPARKLOG, SPARKLOG]


@pytest.mark.parametrize("reader", FORMATS)
def test_both_formats_read_what_the_connector_wrote_in_every_codec(exchange: Exchange, reader: str) -> None:
    """Java's batches, in Java's framing of each codec; the connector sets no timestamps."""
    records = exchange.rows[CONNECTOR, reader]
    assert contents(records, timestamps=False) == Counter(row[:3] for row in written().elements())
    assert records == exchange.rows[CONNECTOR, CONNECTOR]


def test_both_formats_send_a_key_to_the_same_partition(exchange: Exchange) -> None:
    """Records of a key that were written before and after a job moved over must stay in order."""
    ours, theirs = (partition_of_keys(exchange.rows[name, SPARKLOG]) for name in FORMATS)
    assert ours == theirs
    assert set(ours.values()) == set(range(PARTITIONS))


@pytest.mark.parametrize("way", READS)
def test_both_formats_read_the_same_when_asked_the_same(exchange: Exchange, way: str) -> None:
    """An option that means something else loses or doubles records without a word."""
    assert exchange.reads[way, SPARKLOG] == exchange.reads[way, CONNECTOR]
    assert bool(exchange.reads[way, SPARKLOG]) is (way != "past the last timestamp")


@pytest.mark.parametrize("way", REFUSED)
def test_both_formats_refuse_the_same_reads(exchange: Exchange, way: str) -> None:
    """What a job relies on to fail must go on failing."""
    assert {name: bool(exchange.refusals[way, name]) for name in FORMATS} == dict.fromkeys(FORMATS, True)


def test_connector_streams_from_one_topic_to_another(exchange: Exchange) -> None:
    """A structured stream of the connector's on our cluster; the copy has no markers of transactions."""
    source = exchange.rows[SPARKLOG, SPARKLOG]
    assert [_but_offset(record) for record in exchange.streamed] == [_but_offset(record) for record in source]


@pytest.mark.parametrize("first", FORMATS)
def test_stream_goes_on_where_the_other_format_stopped(exchange: Exchange, first: str) -> None:
    """A checkpoint is good for both: users move over, and back, and have every record once."""
    numbers = range(4 * MOVED_RECORDS_A_BATCH)
    batches = [numbers[start : start + MOVED_RECORDS_A_BATCH] for start in numbers[::MOVED_RECORDS_A_BATCH]]
    assert exchange.moved[first] == [list(batch) for batch in batches]
