"""A copier: a member of a group that copies a topic, with the group's offsets, in transactions.

    python -m tests.chaos.copier <bootstrap servers> <source> <target> <transactional id>

It prints a line for each transaction that it has committed, and ends when its standard input does. What it
does about errors is what librdkafka's documentation asks of applications: try again what may be tried again,
abort what must be aborted and read again from what is committed, begin anew after anything else.

Two things are asked of an application that is to copy exactly once whatever is killed:

- It commits as the member that it was when it got its records: what the group knows of it is taken when
  partitions are assigned. Asked for later, a consumer may say that it is in another generation, whose owners
  read the same records, or in none after an outage, and then nobody would fence it.
- It does not trust a call to return. librdkafka 2.16 waits for ever in send_offsets_to_transaction, whatever
  its time-out is, if the group's coordinator was missing from an answer about the cluster since it was last
  asked (its issues 5456 and 5511). An alarm ends such a process, and whoever has started it starts another.
"""

import select
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

GROUP: Final = "chaos-copiers"
RECORDS: Final = 750
"""Of one transaction, at most."""
CONSUME_S: Final = 0.5
TIMEOUT_S: Final = 10.0
HANGING_S: Final = 20
"""After so long in one call it is taken for one that does not return."""
CLIENT: Final = {"reconnect.backoff.max.ms": 1_000, "log_level": 0}


def main() -> None:
    """Copy until nobody wants it any more."""
    bootstrap_servers, source, target, transactional_id = sys.argv[1:]
    while not _is_told_to_end():
        try:
            Copier(bootstrap_servers, target, transactional_id).copy(source)
        except KafkaException as error:
            print(f"begins anew: {error}", flush=True)


class Copier:
    """A consumer and a producer that live until an error that only new ones get over."""

    def __init__(self, bootstrap_servers: str, target: str, transactional_id: str) -> None:
        self._target = target
        self._member: Any = None
        """The group's metadata of the generation in which partitions were assigned; None without any."""
        self._producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 30_000,
            }
        )
        self._consumer = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap_servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
            }
        )

    def copy(self, source: str) -> None:
        """Copy until nobody wants it any more.

        Raises:
            KafkaException: this one cannot go on.
        """
        try:
            _until_done(lambda: self._producer.init_transactions(TIMEOUT_S))
            self._consumer.subscribe([source], on_assign=self._assigned, on_revoke=self._revoked)
            while not _is_told_to_end():
                signal.alarm(HANGING_S)
                messages = [
                    each for each in self._consumer.consume(RECORDS, CONSUME_S) if each.error() is None
                ]
                if messages:
                    self._copy_together(messages)
        finally:
            signal.alarm(HANGING_S)
            self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._member = consumer.consumer_group_metadata()

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._member = None

    def _copy_together(self, messages: Sequence[Message]) -> None:
        """Write the records and the offsets after them in one transaction, or read them again later."""
        after = {
            message.partition(): TopicPartition(message.topic(), message.partition(), message.offset() + 1)
            for message in messages
        }
        offsets, member = list(after.values()), self._member
        if member is None:
            return  # the partitions were taken from it after these records: they are another's, or come again
        try:
            self._producer.begin_transaction()
            for message in messages:
                self._producer.produce(self._target, message.value(), partition=message.partition())
            _until_done(lambda: self._producer.send_offsets_to_transaction(offsets, member, TIMEOUT_S))
            _until_done(lambda: self._producer.commit_transaction(TIMEOUT_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            print(f"aborts: {error}", flush=True)
            _until_done(lambda: self._producer.abort_transaction(TIMEOUT_S))
            self._read_again()
        else:
            print(f"copied {len(messages)}", flush=True)

    def _read_again(self) -> None:
        """Go back to what is committed, wherever the group still has this member read."""
        assigned = self._consumer.assignment()
        if assigned:
            for position in self._consumer.committed(assigned, TIMEOUT_S):
                beginning = TopicPartition(position.topic, position.partition, max(position.offset, 0))
                self._consumer.seek(beginning)


def _is_told_to_end() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _until_done(act: Callable[[], None]) -> None:
    while True:
        signal.alarm(HANGING_S)
        try:
            return act()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            print(f"tries again: {error}", flush=True)


if __name__ == "__main__":
    main()
