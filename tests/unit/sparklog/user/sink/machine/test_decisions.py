"""What lies in the log, and under which names."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.user.sink.machine.decisions import Decision, IndexEntry, WriterTransaction
from sparklog.user.sink.machine.errors import UnreadableDecisionError
from sparklog.user.sink.machine.names import SinkId, SinkKind, sink_of

TEXTS = st.text(max_size=20)
SINKS = st.builds(SinkId, st.sampled_from(SinkKind), TEXTS, st.none() | TEXTS)
RUNS = st.lists(TEXTS, max_size=3).map(tuple)
TRANSACTIONS = st.builds(WriterTransaction, TEXTS, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))


@given(
    st.builds(
        Decision,
        batch_id=st.integers(0, 2**63 - 1),
        run_id=TEXTS,
        former_runs=RUNS,
        rows=st.integers(0, 2**63 - 1),
        transactions=st.lists(TRANSACTIONS, max_size=3).map(tuple),
        waits_for_ever=st.booleans(),
    )
)
def test_decision_is_read_as_it_was_written(decision: Decision) -> None:
    """Another driver, days later, ends what it names."""
    assert Decision.decode(decision.encode()) == decision


@given(st.builds(IndexEntry, st.none() | st.integers(0, 2**63 - 1), TEXTS, RUNS))
def test_index_entry_is_read_as_it_was_written(entry: IndexEntry) -> None:
    """Tasks go by it."""
    assert IndexEntry.decode(entry.encode()) == entry


@pytest.mark.parametrize("value", ["", "[]", '{"version":2}', '{"version":1}', "null"])
def test_what_is_no_decision_of_this_version_is_refused(value: str) -> None:
    """To take it for none would write its batch again."""
    with pytest.raises(UnreadableDecisionError):
        Decision.decode(value.encode())
    with pytest.raises(UnreadableDecisionError):
        IndexEntry.decode(value)


def test_decision_counts_a_bounded_number_of_former_runs() -> None:
    """A query may be started again a thousand times; its decision is one record."""
    decision = Decision(batch_id=0, run_id="r0", rows=0, transactions=(), waits_for_ever=True)
    for number in range(1, 1_000):
        former_runs = Decision.superseded(f"r{number}", decision, ())
        decision = Decision(
            batch_id=0,
            run_id=f"r{number}",
            former_runs=former_runs,
            rows=0,
            transactions=(),
            waits_for_ever=True,
        )
    assert len(decision.former_runs) == 32
    assert decision.former_runs[-1] == "r998"
    assert json.loads(decision.encode())["run"] == "r999"


@given(SINKS, SINKS, TEXTS, TEXTS)
def test_writers_are_told_by_the_beginning_of_their_ids(
    sink: SinkId, other: SinkId, run_id: str, process: str
) -> None:
    """What one sink ends by a prefix is never another sink's, whatever its application calls itself."""
    writer = sink.writer_id(run_id, process, 3)
    assert writer.startswith(sink.run_prefix(run_id))
    assert writer.startswith(other.writers_prefix) == (sink == other or sink.text == other.text)
    assert sink_of(writer) == sink_of(sink.decider_id) == sink.text
    assert sink == other or sink.text != other.text
