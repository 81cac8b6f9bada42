"""Silence counts only in time in which somebody was there to listen."""

from sparklog.executor.control.machine.silence import Silence


def test_silence_of_the_limit_is_too_long_and_a_sign_of_life_ends_it() -> None:
    """A loop that goes round just in time keeps what it leads."""
    silence = Silence(300, now_ms=0)
    assert [silence.is_too_long(now_ms) for now_ms in (100, 200, 299, 300)] == [False, False, False, True]
    silence.heard(350)
    assert [silence.is_too_long(now_ms) for now_ms in (400, 649, 650)] == [False, False, True]


def test_silence_in_time_in_which_the_listener_stood_still_too_does_not_count() -> None:
    """A starved machine, or one that was suspended, must not cost its brokers their leaderships."""
    silence = Silence(300, now_ms=0)
    assert not silence.is_too_long(100)
    assert not silence.is_too_long(60_000)
    assert not silence.is_too_long(60_199)
    assert silence.is_too_long(60_200)


def test_silence_over_a_pause_that_the_listener_meant_counts() -> None:
    """Between heartbeats nothing is checked, and a loop may stand still from the last check on."""
    silence = Silence(3_000, now_ms=0)
    silence.pauses(2_000)
    assert not silence.is_too_long(2_100)
    silence.pauses(500)
    assert not silence.is_too_long(2_600)
    assert silence.is_too_long(3_000)
