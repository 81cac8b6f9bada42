"""Which transactions are asked about apart from the others."""

import pytest

from sparklog.executor.verification.machine.slow_coordinators import SlowCoordinators
from sparklog.protocol.errors import ErrorCode


@pytest.mark.parametrize("late", [ErrorCode.coordinator_not_available, ErrorCode.network_exception])
def test_coordinator_is_slow_from_a_late_answer_to_the_next_in_time(late: ErrorCode) -> None:
    """One that stands still does not hold up the others for longer than once, nor for ever itself."""
    coordinators = SlowCoordinators()
    coordinators.answered(7, [late])
    assert (coordinators.is_slow(7), coordinators.is_slow(8)) == (True, False)
    coordinators.answered(7, [ErrorCode.invalid_producer_epoch])
    assert not coordinators.is_slow(7)


def test_coordinator_that_answers_is_not_slow() -> None:
    """Most questions are answered by no error at all."""
    coordinators = SlowCoordinators()
    coordinators.answered(7, [])
    assert not coordinators.is_slow(7)
