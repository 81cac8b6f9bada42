"""Producers of a log that loses its last batches: taken back, they are those of a log that never had them."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sparklog.node.storage.machine.producer_states import ProducerStates
from sparklog.protocol.records.batch import BatchHeader
from tests.examples import examples
from tests.unit.sparklog.node.storage.batches import headers_of, make_batch, make_marker

NOW_MS = 1_800_000_000_000
NEAR = 8
"""The batches before a cut whose headers are read."""
(DATA,) = headers_of(make_batch(2, producer_id=1, producer_epoch=0, base_sequence=0))
(TRANSACTIONAL,) = headers_of(
    make_batch(2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
)
(MARKER,) = headers_of(make_marker(base_offset=0, producer_id=1, producer_epoch=0, commit=True))
(PLAIN,) = headers_of(make_batch(2))

STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["data", "data", "data", "plain", "end", "new epoch"])),
    min_size=1,
    max_size=40,
)


def log_of(steps: Sequence[tuple[int, str]]) -> list[BatchHeader]:
    """Return the headers of a log: producer 3 writes in transactions, the others do not."""
    log: list[BatchHeader] = []
    epochs, sequences = dict.fromkeys((1, 2, 3), 0), dict.fromkeys((1, 2, 3), 0)
    end = 0
    for producer_id, step in steps:
        if step == "new epoch":
            epochs[producer_id] += 1
            sequences[producer_id] = 0
            continue
        header = PLAIN if step == "plain" else TRANSACTIONAL if producer_id == 3 else DATA
        if step == "end":
            header = MARKER
        if header is not PLAIN:
            header = header._replace(producer_id=producer_id, producer_epoch=epochs[producer_id])
        if header.producer_id >= 0 and not header.is_control:
            header = header._replace(base_sequence=sequences[producer_id])
            sequences[producer_id] += 2
        log.append(header._replace(base_offset=end))
        end = log[-1].next_offset
    return log


def states_of(log: Sequence[BatchHeader]) -> ProducerStates:
    states = ProducerStates()
    for header in log:
        if header.is_control:
            states.end_transaction(header, NOW_MS, aborted=False, coordinator_epoch=0)
        else:
            states.update(header, NOW_MS)
    return states


def known(states: ProducerStates) -> dict[int, tuple[object, ...]]:
    return {
        producer_id: (
            state.producer_epoch,
            state.transaction_first_offset,
            state.coordinator_epoch,
            tuple(state.batches),
        )
        for producer_id, state in states.producers.items()
    }


@given(steps=STEPS, count=st.integers(0, 39), is_shared=st.booleans())
@examples(300)
def test_states_whose_last_batches_are_taken_back_are_those_before_them(
    steps: list[tuple[int, str]], count: int, is_shared: bool
) -> None:
    """Else a retry would be appended twice, a new batch refused, or read_committed readers wait for ever."""
    log = log_of(steps)
    cut = min(count, len(log))
    kept, removed = log[:cut], log[cut:]
    states, expected, before = states_of(log), states_of(kept), known(states_of(log))
    retried = {
        producer_id: [each for each in state.batches if cut == 0 or each.last_offset < kept[-1].next_offset]
        for producer_id, state in states.producers.items()
    }
    captured = states.capture() if is_shared else None
    near = kept[-NEAR:]
    if not states.take_back(removed, near):
        assert known(states) == before
        found = states_of([each for each in near if not each.is_control]).producers
        assert any(
            each.is_control
            or each.producer_id not in found
            or found[each.producer_id].producer_epoch != before[each.producer_id][0]
            for each in removed
            if each.producer_id >= 0
        )
        return
    after, wanted = known(states), known(expected)
    assert after.keys() == wanted.keys()
    for producer_id, (*others, batches) in after.items():
        *others_wanted, all_batches = wanted[producer_id]
        assert others == others_wanted
        assert isinstance(batches, tuple)
        assert isinstance(all_batches, tuple)
        assert all_batches[len(all_batches) - len(batches) :] == batches
        assert batches[-1:] == all_batches[-1:]
        assert set(retried[producer_id]) <= set(batches)
        nearby = [each for each in all_batches if each.last_offset >= near[0].base_offset] if near else []
        assert set(nearby) <= set(batches) or not any(each.producer_id == producer_id for each in removed)
    end_offset = kept[-1].next_offset if kept else 0
    assert states.first_unstable_offset(end_offset) == expected.first_unstable_offset(end_offset)
    assert states.end_offset <= end_offset
    if captured is not None:
        assert {each: tuple(captured[each].batches) for each in captured} == {
            each: before[each][3] for each in captured
        }


def test_transaction_that_began_in_removed_batches_may_begin_again_below_them() -> None:
    """The new leader has other records there: the last stable offset is the first of all that are open."""
    log = log_of([(1, "data"), (3, "data"), (3, "end"), (1, "data"), (3, "data")])
    states = states_of(log)
    assert states.first_unstable_offset(100) == log[4].base_offset
    assert states.take_back(log[3:])
    states.update(log[4]._replace(base_offset=log[3].base_offset), NOW_MS)
    assert states.first_unstable_offset(100) == log[3].base_offset
