"""When calls begin beside those that a catalogue never answered."""

from sparklog.driver.controller.tables.machine.silent_calls import (
    MOST_SILENT,
    PROBE_INTERVAL_MS,
    SilentCalls,
)


def full() -> SilentCalls:
    calls = SilentCalls()
    for _ in range(MOST_SILENT):
        calls.given_up("silent")
    return calls


def test_callers_with_many_silent_calls_begin_one_from_time_to_time() -> None:
    """Each leaves a thread behind, and without any a catalogue that is back would not be noticed."""
    calls = full()
    begun = [now_ms for now_ms in range(0, 3 * PROBE_INTERVAL_MS, 1_000) if calls.may_begin("silent", now_ms)]
    assert begun == [0, PROBE_INTERVAL_MS, 2 * PROBE_INTERVAL_MS]


def test_caller_without_a_silent_call_begins_beside_many() -> None:
    """A lock on one row of the catalogue's database is no reason for other tables to wait."""
    calls = full()
    assert all(calls.may_begin("another", now_ms) for now_ms in range(3))


def test_answer_to_a_silent_caller_lets_all_go_on_though_no_thread_ends() -> None:
    """A round takes several calls: one every ten minutes would never come to a commit."""
    calls = full()
    calls.given_up("another")
    assert calls.may_begin("silent", 0)
    calls.answered("silent")
    assert all(calls.may_begin(caller, 1) for caller in ("silent", "another", "silent"))


def test_caller_whose_next_call_is_silent_again_waits_again() -> None:
    """A table can be read while its row is locked: each commit would leave a thread."""
    calls = full()
    assert calls.may_begin("silent", 0)
    calls.answered("silent")
    assert calls.may_begin("silent", 1)
    calls.given_up("silent")
    calls.answered("another")
    assert not calls.may_begin("silent", 2)


def test_calls_that_end_late_make_room() -> None:
    """A catalogue that is back ends them, and leaves nothing to be careful about."""
    calls = full()
    assert calls.may_begin("silent", 0)
    assert not calls.may_begin("silent", 1)
    calls.ended("silent")
    assert all(calls.may_begin("silent", now_ms) for now_ms in range(3))
