"""When a copy is secured, told of, and takes its log's place."""

from uuid import UUID

import pytest

from sparklog.executor.log_dir_moves.machine.directory_move import DirectoryMove, Step

SOURCE, TARGET = UUID(int=1), UUID(int=2)


def step(
    move: DirectoryMove,
    log_end_offset: int,
    copied_offset: int,
    *,
    near: int = 10,
    is_settling: bool = False,
    is_throttled: bool = False,
    assigned_directory: UUID | None = SOURCE,
) -> Step:
    """Ask for the next step; what lacks `near` offsets at most can be taken over at once."""
    return move.next_step(
        log_end_offset=log_end_offset,
        copied_offset=copied_offset,
        is_near=log_end_offset - copied_offset <= near,
        is_settling=is_settling,
        is_throttled=is_throttled,
        assigned_directory=assigned_directory,
    )


def assigned_directory(move: DirectoryMove, end: int) -> None:
    """Bring a move to where it waits for the controller."""
    assert step(move, end, end) is Step.SECURE
    move.secured()
    assert step(move, end, end) is Step.REPORT


def test_move_copies_secures_tells_and_replaces_in_this_order() -> None:
    """Whatever is left out on the way is lost in some crash."""
    move = DirectoryMove(TARGET)
    assert step(move, 100, 0) is Step.COPY
    assert step(move, 100, 50) is Step.COPY
    assert step(move, 100, 100) is Step.SECURE
    assert step(move, 100, 100) is Step.SECURE, "until it is said to be done"
    move.secured()
    assert step(move, 100, 100) is Step.REPORT
    assert step(move, 100, 100) is Step.WAIT
    assert step(move, 105, 100) is Step.COPY, "meanwhile it follows"
    assert step(move, 105, 105, assigned_directory=TARGET) is Step.REPLACE


def test_log_that_grows_all_the_while_is_replaced_by_a_copy_that_is_near() -> None:
    """Under load the two are never equal when somebody looks."""
    move = DirectoryMove(TARGET)
    assert step(move, 105, 100) is Step.COPY
    assert step(move, 110, 105) is Step.SECURE, "what was there when it came near is copied"
    move.secured()
    assert step(move, 115, 110) is Step.REPORT
    assert step(move, 120, 115, assigned_directory=TARGET) is Step.REPLACE
    assert step(move, 200, 115, assigned_directory=TARGET) is Step.COPY


def test_small_log_is_copied_before_it_is_secured() -> None:
    """All of it is near from the start, and none of it on the other disk."""
    move = DirectoryMove(TARGET)
    assert step(move, 5, 0) is Step.COPY
    assert step(move, 5, 5) is Step.SECURE


def test_log_that_is_cut_below_what_was_to_be_secured_is_secured_as_it_is() -> None:
    """What is gone cannot be waited for."""
    move = DirectoryMove(TARGET)
    assert step(move, 105, 100) is Step.COPY
    assert step(move, 90, 90) is Step.SECURE


@pytest.mark.parametrize("assigned_directory", [SOURCE, None, TARGET])
def test_copy_that_was_not_told_of_does_not_replace_the_log(assigned_directory: UUID | None) -> None:
    """Not even if the metadata names the directory: that may be an older word, and another on its way."""
    move = DirectoryMove(TARGET)
    assert step(move, 5, 5, assigned_directory=assigned_directory) is Step.SECURE
    move.secured()
    assert step(move, 5, 5, assigned_directory=assigned_directory) is Step.REPORT


def test_log_that_does_not_know_its_producers_is_not_copied_and_not_replaced() -> None:
    """They go with it: a retry would be taken for something new."""
    move = DirectoryMove(TARGET)
    assigned_directory(move, 5)
    assert step(move, 5, 5, assigned_directory=TARGET, is_settling=True) is Step.WAIT
    assert step(move, 5, 5, assigned_directory=TARGET) is Step.REPLACE


def test_throttled_copy_rests_but_what_it_has_is_brought_to_its_end() -> None:
    """The rate holds what is copied back, and nothing else."""
    move = DirectoryMove(TARGET)
    assert step(move, 100, 0, is_throttled=True) is Step.REST
    assert step(move, 5, 5, is_throttled=True) is Step.SECURE
    move.secured()
    assert step(move, 5, 5, is_throttled=True) is Step.REPORT
    assert step(move, 7, 5, is_throttled=True) is Step.REST
    assert step(move, 7, 5, is_throttled=True, assigned_directory=TARGET) is Step.REPLACE
