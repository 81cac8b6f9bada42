"""Delivery of rows from tasks into the log under each guarantee, for the writers of batches and of streams.

At least once: a task writes, and acknowledged rows stay. The tasks of a process share one producer identity,
since each replica of a written partition remembers every producer for a day. Exactly once: a task writes in a
transaction that it leaves prepared, and the driver decides (`sparklog.user.sink`). Tasks read the last
decision after they have initialized their transactional id and before they write, and again when all is
written (`verdict_on_task`); those of a job check that the job is still running.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.errors import TopicReplacedError
from sparklog.user.client.producer import Producer
from sparklog.user.client.topic_ids import check_topic_ids
from sparklog.user.dataframe.errors import errors_in_one_line
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.prepared_rows import (
    Batch,
    PreparedRows,
    WrittenRecords,
    raise_refusals,
    records_of,
    refusal,
)
from sparklog.user.dataframe.row_writer import RowWriter, WrittenRows
from sparklog.user.dataframe.worker_process import this_process
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.decisions import WriterTransaction
from sparklog.user.sink.machine.names import SinkKind
from sparklog.user.sink.machine.protocols import Abort, Begin, Commit, Decider, Finish, SinkBatch
from sparklog.user.sink.machine.steps import EndTransactions, carry_out
from sparklog.user.sink.machine.verdicts import Verdict, verdict_on_task, verdict_on_task_of_job

logger = logging.getLogger(__name__)

Messages = list[WriterCommitMessage | None]

_OF_A_RUN_MS: Final = 10_000
"""Age limit of topic metadata at a process's first task of a run: short enough for a user who restarts a
query or a job, and long enough for jobs in quick succession, as in foreachBatch."""


class _Delivery:
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check that rows of this schema can be written with the options.

        Raises:
            DataSourceSchemaError: the schema is not one of records.
        """
        self._options = options
        self._rows = RowWriter(options, schema)


class AtLeastOnce(_Delivery):
    """Common part of the writers of batches and of streams that write at least once.

    A task that Spark repeats writes its rows again: those of a failed attempt stay.
    """

    @errors_in_one_line()
    def prepare(self) -> None:
        """Find the topic before Spark starts tasks.

        Raises:
            UnknownTopicError, KafkaError: it does not exist, or can't be found.
        """
        with _client(self._options) as client:
            self._rows.find_topic(client.cluster)

    @errors_in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write all rows of a task; return when all are acknowledged.

        Raises:
            DeliveryError, KafkaError: the cluster refused them or did not answer.
        """
        try:
            with _client(self._options) as client:
                written = self._write(client, iterator)
                return WrittenRecords(written.counts, written.oldest_timestamps_ms, written.topic_ids)
        except Exception as error:
            if (refused := refusal(None, error)) is None:
                raise
            return refused

    def _write(self, client: SinkClient, rows: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write all rows, with the identity of the process's previous task if that succeeded."""
        started: list[Producer] = []

        def start(producer: Producer) -> bool:
            before, client.last_producer = client.last_producer, None
            producer.start(before)
            started.append(producer)
            return True

        written = self._rows.write(client.cluster, rows, start)
        for producer in started:
            client.last_producer = producer.identity
        return written

    @errors_in_one_line()
    def written(self, messages: Messages) -> Counter[TopicPartition]:
        """Return the number of records written to each partition.

        Raises:
            InvalidRowError, KafkaError: some could not be written.
        """
        raise_refusals(messages)
        return self._rows.written(messages)


class ExactlyOnce(_Delivery):
    """Writes each batch once; readers of committed records see all of it or nothing."""

    def prepare(self, batch: Batch | None) -> Decider | None:
        """On the driver, before tasks: find the topic; begin a job and return its decider.

        Finishes the previous version of an application.

        Raises:
            SinkError: a previous decision can't be carried out.
            UnknownTopicError, TransactionsUnsupportedError, KafkaError: the write is impossible.
        """
        with _client(self._options) as client:
            client.check()
            self._rows.find_topic(client.cluster)
            if batch is not None and batch.sink.kind is SinkKind.APPLICATION:
                return carry_out(Finish(batch.sink).steps(), client.perform)
            if batch is None or batch.sink.kind is not SinkKind.JOB:
                return None
            decider = carry_out(Begin(batch.sink).steps(), client.perform)
            batch.began_with = decider.stamp
            return decider

    def write(self, batch: Batch, rows: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows in a transaction that is left prepared, unless the batch is decided.

        Raises:
            DeliveryError, KafkaError: the cluster refused them or did not answer.
        """
        attempt = _Attempt(self._options, batch)
        try:
            with _client(self._options) as client:
                written = self._rows.write(
                    client.cluster, rows, lambda producer: attempt.begin_unless_decided(client, producer)
                )
                if attempt.ends_too_late(client):
                    written = written._replace(counts=Counter(), unwritten_rows=written.counts.total())
        except BaseException as error:
            attempt.give_up()
            if isinstance(error, Exception) and (refused := refusal(batch, error)) is not None:
                return refused
            raise
        return PreparedRows(
            batch,
            counts=written.counts,
            oldest_timestamps_ms=written.oldest_timestamps_ms,
            topic_ids=written.topic_ids,
            transaction=attempt.transaction,
            waits_for_ever=attempt.waits_for_ever,
            unwritten_rows=written.unwritten_rows,
        )

    def commit(
        self, batch: Batch, messages: Messages, decider: Decider | None = None
    ) -> Counter[TopicPartition]:
        """Decide the batch and end its transactions; return the number of records written to each partition.

        Raises:
            SinkError: it must not be written, or is not whole.
            TopicReplacedError: a topic was deleted since a task wrote to it; nothing was decided.
            InvalidRowError, KafkaError: some rows could not be written; nothing was decided.
        """
        raise_refusals(messages)
        config, process = self._options.client, this_process()
        sink, run_id = batch.sink, batch.run_id
        decider = decider or process.decider(config, sink, run_id)
        with _client(self._options) as client:
            _check_topics(client.cluster, messages)
            following = carry_out(Commit(_sink_batch(batch, messages), decider).steps(), client.perform)
        if following is not None and sink.kind is SinkKind.QUERY:  # others go on as none
            process.keep_decider(config, sink, run_id, following)
        return self._rows.written(messages)

    def abort(self, batch: Batch, messages: Messages) -> bool:
        """End the transactions of a failed attempt; return whether the batch was decided, and so is written.

        Raises:
            SinkError, KafkaError: the outcome is unknown.
        """
        this_process().decider(self._options.client, batch.sink, batch.run_id)
        with _client(self._options) as client:
            return carry_out(Abort(_sink_batch(batch, messages)).steps(), client.perform)


class _Attempt:
    def __init__(self, options: WriteOptions, batch: Batch) -> None:
        self._options = options
        self._batch = batch
        self.transaction: WriterTransaction | None = None
        self.waits_for_ever = True

    def begin_unless_decided(self, client: SinkClient, producer: Producer) -> bool:
        """Begin a transaction for the rows; return False if the batch is decided, and so is written."""
        batch, process = self._batch, this_process()
        if not process.has_written(batch.sink, batch.run_id):
            # A run may have begun because a topic was created again, or got more partitions.
            client.cluster.forget_older(_OF_A_RUN_MS)
        writer_ids = process.writer_ids(batch.sink, batch.run_id, batch.batch_id)
        transaction, waits_for_ever = client.initialize_writer(
            batch.sink, writer_ids, self._options.transaction_timeout_ms
        )
        if self._verdict(client) is Verdict.ALREADY_DECIDED:
            return False
        self.transaction, self.waits_for_ever = transaction, waits_for_ever
        producer.begin_transaction(*transaction)
        return True

    def ends_too_late(self, client: SinkClient) -> bool:
        """Return whether the batch was decided meanwhile; the transaction is aborted then.

        The deciding driver has listed open transactions before, and this one may have begun later: no other
        process would end it.

        Raises:
            SinkError: the run is over.
        """
        if self.transaction is None or self._verdict(client) is not Verdict.ALREADY_DECIDED:
            return False
        client.perform(EndTransactions([self.transaction], False))
        self.transaction = None
        return True

    def give_up(self) -> None:
        """Abort the transaction, if the cluster can be reached; else the driver or the next run does."""
        if self.transaction is None:
            return
        try:
            with _client(self._options) as client:
                client.perform(EndTransactions([self.transaction], False))
        except KafkaError as error:
            logger.warning(
                "Transaction %s could not be aborted yet: %s", self.transaction.transactional_id, error
            )

    def _verdict(self, client: SinkClient) -> Verdict:
        batch = self._batch
        if batch.sink.kind is SinkKind.JOB:
            return verdict_on_task_of_job(batch.run_id, batch.began_with, client.undecided(batch.sink))
        entry = client.index_entry(batch.sink)
        return verdict_on_task(batch.sink.kind, batch.batch_id, batch.run_id, entry)


def reported_batch(messages: Messages) -> Batch | None:
    """Return the batch for which the tasks wrote; None if no message has one."""
    batches = (getattr(message, "batch", None) for message in messages)
    return next((batch for batch in batches if batch is not None), None)


def _sink_batch(batch: Batch, messages: Messages) -> SinkBatch:
    prepared = [message for message in records_of(messages) if isinstance(message, PreparedRows)]
    return SinkBatch(
        sink=batch.sink,
        batch_id=batch.batch_id,
        run_id=batch.run_id,
        rows=sum(message.rows for message in prepared),
        transactions=tuple(message.transaction for message in prepared if message.transaction is not None),
        waits_for_ever=all(message.waits_for_ever for message in prepared),
        unwritten_rows=sum(message.unwritten_rows for message in prepared),
    )


def _check_topics(cluster: ClusterClient, messages: Messages) -> None:
    """Check that all written topics still exist: rows in a deleted topic would be missing silently."""
    topic_ids: dict[str, UUID | None] = {}
    for message in records_of(messages):
        for name, topic_id in message.topic_ids.items():
            if topic_ids.setdefault(name, topic_id) != topic_id:
                raise TopicReplacedError(name)
    check_topic_ids(cluster, topic_ids)


@contextmanager
def _client(options: WriteOptions) -> Iterator[SinkClient]:
    """Return this process's client of the cluster; after a failure the next call creates another one."""
    try:
        yield this_process().client(options.client)
    except BaseException:
        this_process().drop(options.client)
        raise
