"""Pages of transactions and producers: names are text, and what ends something can be copied."""

from dataclasses import replace

from sparklog.driver.ui.machine.transactions import ProducerRow, TransactionRemark, TransactionStatus
from sparklog.driver.ui.pages.html import UI_ROOT_MARK
from sparklog.driver.ui.pages.transactions import producers_page, transactions_page
from sparklog.protocol.types import TopicPartition
from sparklog.user.sink.machine.names import SinkId, SinkKind
from tests.unit.driver.ui.pages.statuses import EVIL

SERVERS = "driver:9092"


def transaction(partitions: int) -> TransactionStatus:
    return TransactionStatus(
        transactional_id=EVIL,
        state="Ongoing",
        remark=TransactionRemark.UNDECIDED,
        producer_id=1_000,
        producer_epoch=3,
        coordinator=1,
        started_ms=1_700_000_000_000,
        age_ms=90_000,
        timeout_ms=None,
        partitions=tuple(TopicPartition("orders", number) for number in range(partitions)),
    )


def producer(producer_id: int, *, is_hanging: bool) -> ProducerRow:
    return ProducerRow(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_start_offset=1_200 + producer_id,
        is_hanging=is_hanging,
        transactional_id=EVIL,
        state="Ongoing",
        last_timestamp_ms=None,
        last_sequence=None,
        coordinator_epoch=None,
    )


def test_transaction_says_what_it_waits_for_and_leads_to_its_partitions() -> None:
    """From a reader that stands still to who is to end what it waits for."""
    page = transactions_page(None, [transaction(12)], 1, open_for_ms=None, bootstrap_servers=SERVERS)
    assert "<img" not in page
    assert '<span class="badge text-bg-warning">waits for a decision</span>' in page
    assert ">none</td>" in page
    assert (
        f'<a href="{UI_ROOT_MARK}/log/producers/?name=orders&amp;partition=9">orders-9</a> and 2 more' in page
    )
    assert f"--bootstrap-server {SERVERS} forceTerminateTransaction" in page


def test_transactions_of_a_sink_come_with_the_command_that_keeps_what_was_decided() -> None:
    """Kafka's tool would abort rows that a decision names, and that were told as written."""
    sinks = [SinkId(SinkKind.QUERY, "q1"), SinkId(SinkKind.APPLICATION, "b.eu", "orders")]
    names = [sink.writer_id("run", f"process-{number}", 0) for sink in sinks for number in range(2)]
    open_ones = [replace(transaction(1), transactional_id=name) for name in names]
    page = transactions_page(None, open_ones, 1, open_for_ms=None, bootstrap_servers=SERVERS)
    commands = [f"sparklog-sinks {SERVERS} --end {sink.text}" for sink in sinks]
    assert f"<pre>{commands[0]}\n{commands[1]}</pre>" in page


def test_id_that_is_only_like_a_sinks_is_in_no_command() -> None:
    """Anybody may choose a transactional id, and somebody else copies what the page says into a shell."""
    stranger = replace(transaction(1), transactional_id="sparklog-sink.query-$(reboot).x.y.0")
    page = transactions_page(None, [stranger], 1, open_for_ms=None, bootstrap_servers=SERVERS)
    assert "sparklog-sinks" not in page


def test_transactions_that_are_left_out_are_told() -> None:
    """A list that is cut in silence is taken for all there is."""
    page = transactions_page(None, [transaction(1)], 1, open_for_ms=60_000, bootstrap_servers=SERVERS)
    assert "Open transactions for longer than 1.0 min, of too many to be shown all: 1;" in page


def test_hanging_transaction_comes_with_the_command_that_ends_it() -> None:
    """Typed from memory it would end another one."""
    producers = [producer(5, is_hanging=True), producer(6, is_hanging=False)]
    page = producers_page(None, TopicPartition("orders", 3), producers, 1, bootstrap_servers=SERVERS)
    assert "<img" not in page
    command = f"kafka-transactions.sh --bootstrap-server {SERVERS} abort --topic orders --partition 3"
    assert page.count("<pre>") == 1
    assert f"<pre>{command} --start-offset 1205</pre>" in page


def test_partition_without_hanging_transactions_offers_no_command() -> None:
    """What lives is not to be aborted."""
    producers = [producer(number, is_hanging=False) for number in range(150)]
    page = producers_page(None, TopicPartition("orders", 3), producers, 2, bootstrap_servers=SERVERS)
    assert "<pre>" not in page
    assert page.count("<tr>") == 1 + 50
