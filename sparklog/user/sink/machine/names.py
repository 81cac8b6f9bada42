"""Names of a sink: its decider, the group that indexes its decisions, and its writers' transactional ids.

    sparklog-sink.<sink>                            the decider's transactional id, and the group
    sparklog-sink.<sink>.<run>.<process>.<slot>     a writer's transactional id
    __sparklog_sink_decisions                       the topic of all sinks' decisions

A writer is one process of one run of a query; a slot is one of the transactions that it has open at a time.
No other process initializes its ids, so no retried or speculative task and no other run can abort the
transactions that it left prepared. A driver finds the transactions of its run's tasks by their common prefix.
No part contains a dot, so no sink's names are a prefix of another's.
"""

import re
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote

NAMES_PREFIX: Final = "sparklog-sink."
DECISIONS_TOPIC: Final = "__sparklog_sink_decisions"
_KEPT: Final = re.compile(rb"[A-Za-z0-9_-]")


class SinkKind(Enum):
    """Identity of a write: which writes are repetitions of it, and which follow it.

    The protocols ask for the properties of a kind, and for none by its name.
    """

    QUERY = "query"
    """A streaming query. One run of it may write; a batch that comes again is the same batch, or refused."""
    APPLICATION = "app"
    """An application with a txnAppId, as for Delta tables: only a later version is written."""
    JOB = "job"
    """One batch write, which is not repeated. It continues while its decider is the one that it began with
    and has decided nothing."""

    def __init__(self, name: str) -> None:
        self.has_runs: Final = name == "query"
        """Whether runs follow one another, with transactional ids of their own; each refuses former ones."""
        self.decides_once: Final = name == "job"
        """Whether nothing follows a write: its decision is found by its decider, and deleted at the end."""
        self.is_continued: Final = name == "app"
        """Whether later writes use the transactional ids of earlier ones, whose transactions they give up."""


class SinkId(NamedTuple):
    kind: SinkKind
    name: str
    topic: str | None = None
    """Topic of an application's write: it may write the same versions to several topics, in a write each."""

    @property
    def text(self) -> str:
        """Return the sink's part of all its names.

        >>> SinkId(SinkKind.APPLICATION, "billing.eu", "orders").text
        'app-billing%2Eeu@orders'
        """
        topic = "" if self.topic is None else f"@{_escaped(self.topic)}"
        return f"{self.kind.value}-{_escaped(self.name)}{topic}"

    @classmethod
    def parse(cls, text: str) -> "SinkId":
        """Return the sink whose `text` is given.

        >>> SinkId.parse("app-billing%2Eeu@orders")
        SinkId(kind=<SinkKind.APPLICATION: 'app'>, name='billing.eu', topic='orders')

        Raises:
            ValueError: no sink has this text.
        """
        kind, _, rest = text.partition("-")
        name, has_topic, topic = rest.partition("@")
        try:
            sink = cls(SinkKind(kind), unquote(name), unquote(topic) if has_topic else None)
        except ValueError:
            sink = None
        if sink is None or sink.text != text:
            raise ValueError(f"'{text}' is not a sink: sinks are named query-<id> or app-<txnAppId>@<topic>")
        return sink

    @property
    def is_indexed(self) -> bool:
        """Whether tasks and deciders find the last decision by a group's offset.

        A job has at most one decision. Its tasks ask for its decider instead, and a driver that becomes
        its decider again, which happens only after a failure, reads the topic.
        """
        return not self.kind.decides_once

    @property
    def decider_id(self) -> str:
        """Return the decider's transactional id, which is also the group that indexes decisions."""
        return NAMES_PREFIX + self.text

    @property
    def writers_prefix(self) -> str:
        return f"{self.decider_id}."

    def run_prefix(self, run_id: str) -> str:
        return f"{self.writers_prefix}{_escaped(run_id)}."

    def writer_id(self, run_id: str, process: str, slot: int) -> str:
        return f"{self.run_prefix(run_id)}{_escaped(process)}.{slot}"


def sink_of(transactional_id: str) -> str | None:
    """Return the text of the sink that has an id, a decider's or a writer's; None if no sink has it.

    >>> sink_of(SinkId(SinkKind.QUERY, "q1").writer_id("r1", "p1", 0))
    'query-q1'
    """
    if not transactional_id.startswith(NAMES_PREFIX):
        return None
    return transactional_id.removeprefix(NAMES_PREFIX).partition(".")[0]


def kind_of(transactional_id: str) -> SinkKind | None:
    """Return the kind of the sink that has an id; None if no sink has it.

    >>> kind_of(SinkId(SinkKind.JOB, "j1").writer_id("r1", "p1", 0)).value
    'job'
    """
    text = sink_of(transactional_id)
    return None if text is None else SinkId.parse(text).kind


def run_of(transactional_id: str) -> str:
    """Return the run of a writer's id.

    >>> run_of(SinkId(SinkKind.QUERY, "q1").writer_id("r.1", "p1", 0))
    'r.1'
    """
    return unquote(transactional_id.removeprefix(NAMES_PREFIX).split(".")[1])


def _escaped(text: str) -> str:
    return "".join(
        chr(byte) if _KEPT.match(bytes([byte])) else f"%{byte:02X}" for byte in text.encode("utf-8")
    )
