"""The names of a sink: its decider, the group that its decisions are found by, and its writers' ids.

    sparklog-sink.<sink>                            the decider's transactional id, and the group
    sparklog-sink.<sink>.<run>.<process>.<slot>     a writer's transactional id
    __sparklog_sink_decisions                       the topic of all sinks' decisions

A writer is one process of one run of a query, and a slot one of the transactions that it has open at a time.
Nobody else initializes its ids, so no retried task, speculative one or other run can abort what it left
prepared; and a driver can end what tasks of its own run left, whose ids it was never told, by their
beginning. No part holds a dot, so that no sink's names begin with another's.
"""

import re
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote

NAMES_PREFIX: Final = "sparklog-sink."
DECISIONS_TOPIC: Final = "__sparklog_sink_decisions"
_KEPT: Final = re.compile(rb"[A-Za-z0-9_-]")


class SinkKind(Enum):
    """What makes two writes the same, and what another one means."""

    QUERY = "query"
    """A streaming query. One run of it may write; a batch that it does again is the same, or refused."""
    APPLICATION = "app"
    """Whatever names itself by txnAppId, as for Delta tables: only a later version is written."""
    JOB = "job"
    """One batch write, which is not done again. It goes on while its decider is the one that it began with,
    and has decided nothing."""


class SinkId(NamedTuple):
    """What decisions are made for."""

    kind: SinkKind
    name: str
    topic: str | None = None
    """Of an application: one may write the same versions to several topics, each in a write of its own."""

    @property
    def text(self) -> str:
        """Return the part of names that is the sink's.

        >>> SinkId(SinkKind.APPLICATION, "billing.eu", "orders").text
        'app-billing%2Eeu@orders'
        """
        topic = "" if self.topic is None else f"@{_escaped(self.topic)}"
        return f"{self.kind.value}-{_escaped(self.name)}{topic}"

    @classmethod
    def parse(cls, text: str) -> "SinkId":
        """Return the sink whose `text` that is.

        >>> SinkId.parse("app-billing%2Eeu@orders")
        SinkId(kind=<SinkKind.APPLICATION: 'app'>, name='billing.eu', topic='orders')

        Raises:
            ValueError: there is none.
        """
        kind, _, rest = text.partition("-")
        name, has_topic, topic = rest.partition("@")
        try:
            sink = cls(SinkKind(kind), unquote(name), unquote(topic) if has_topic else None)
        except ValueError:
            sink = None
        if sink is None or sink.text != text:
            raise ValueError(f"'{text}' is no sink: they are named as in query-<id>, app-<txnAppId>@<topic>")
        return sink

    @property
    def is_indexed(self) -> bool:
        """Whether tasks, and who becomes the decider, find the last decision by a group's offset.

        Of a job there is one decision at most. Its tasks ask for its decider, and who becomes that, which
        nobody does whose job succeeds, reads the topic.
        """
        return self.kind is not SinkKind.JOB

    @property
    def decider_id(self) -> str:
        """Return the transactional id of whoever decides; also the group that decisions are found by."""
        return NAMES_PREFIX + self.text

    @property
    def writers_prefix(self) -> str:
        """Return how the transactional ids of all writers begin."""
        return f"{self.decider_id}."

    def run_prefix(self, run_id: str) -> str:
        """Return how the transactional ids of a run's writers begin."""
        return f"{self.writers_prefix}{_escaped(run_id)}."

    def writer_id(self, run_id: str, process: str, slot: int) -> str:
        """Return the transactional id of one transaction of a process."""
        return f"{self.run_prefix(run_id)}{_escaped(process)}.{slot}"


def sink_of(transactional_id: str) -> str | None:
    """Return which sink an id is of, its decider's or a writer's; None if of none.

    >>> sink_of(SinkId(SinkKind.QUERY, "q1").writer_id("r1", "p1", 0))
    'query-q1'
    """
    if not transactional_id.startswith(NAMES_PREFIX):
        return None
    return transactional_id.removeprefix(NAMES_PREFIX).partition(".")[0]


def kind_of(transactional_id: str) -> SinkKind | None:
    """Return of which kind the sink is that an id is of; None if of none.

    >>> kind_of(SinkId(SinkKind.JOB, "j1").writer_id("r1", "p1", 0)).value
    'job'
    """
    text = sink_of(transactional_id)
    return None if text is None else SinkId.parse(text).kind


def run_of(transactional_id: str) -> str:
    """Return which run a writer's id is of.

    >>> run_of(SinkId(SinkKind.QUERY, "q1").writer_id("r.1", "p1", 0))
    'r.1'
    """
    return unquote(transactional_id.removeprefix(NAMES_PREFIX).split(".")[1])


def _escaped(text: str) -> str:
    return "".join(
        chr(byte) if _KEPT.match(bytes([byte])) else f"%{byte:02X}" for byte in text.encode("utf-8")
    )
