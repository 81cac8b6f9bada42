"""The pushes of metrics that an idle broker leaves out."""

from sparklog.executor.monitoring.machine.quiet_pushes import QUIET_S, QuietPushes


def test_idle_broker_pushes_once_more_and_then_every_ten_seconds() -> None:
    """The push after the last request shows that rates are zero; silence would look like a loss."""
    pushes = QuietPushes()

    due_s = [second for second in range(40) if pushes.is_due(max(3 - second, 0), float(second))]

    assert due_s == [0, 1, 2, 3, 4, 4 + QUIET_S, 4 + 2 * QUIET_S, 4 + 3 * QUIET_S]


def test_broker_pushes_in_the_interval_in_which_something_happens() -> None:
    """An open page shows what begins after an idle hour as soon as what goes on."""
    pushes = QuietPushes()
    assert [pushes.is_due("idle", float(second)) for second in range(4)] == [True, True, False, False]

    assert pushes.is_due("busy", 4.0)
