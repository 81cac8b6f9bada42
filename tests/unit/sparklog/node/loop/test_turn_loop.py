"""The end of a turn of an event loop, on real loops and sockets."""

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

from sparklog.node.loop.turn_loop import TURN_END_S, TurnLoop, TurnSelector, at_turn_end

DEADLINE_S = 20.0


def run(main: Callable[[TurnLoop], Coroutine[Any, Any, None]], selector: TurnSelector | None = None) -> None:
    async def in_time() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnLoop)
        await asyncio.wait_for(main(loop), DEADLINE_S)

    with asyncio.Runner(loop_factory=lambda: TurnLoop(selector or TurnSelector())) as runner:
        runner.run(in_time())


def test_callbacks_of_a_turn_end_run_in_order_before_the_loop_looks_at_its_sockets() -> None:
    """An answer would leave one or two system calls and rounds of the loop later."""
    done: list[str] = []

    class NotedSelector(TurnSelector):
        def select(self, timeout: float | None = None) -> Any:
            had_callbacks = bool(self.at_turn_end)
            events = super().select(timeout)
            if had_callbacks:
                done.append("looked")
            return events

    async def main(loop: TurnLoop) -> None:
        ended = loop.create_future()

        def first() -> None:
            done.append("first")
            loop.call_at_turn_end(lambda: done.append("third"))
            loop.call_at_turn_end(lambda: ended.set_result(None))

        loop.call_at_turn_end(first)
        loop.call_at_turn_end(lambda: done.append("second"))
        done.append("turn")
        await ended

    run(main, NotedSelector())
    assert done == ["turn", "first", "second", "third", "looked"]


def test_loop_does_not_wait_after_a_turn_end_that_has_scheduled_a_callback() -> None:
    """How long it may wait was found before: without a socket or a timer it would sleep for good."""

    async def main(loop: TurnLoop) -> None:
        ended = loop.create_future()
        loop.call_at_turn_end(lambda: loop.call_soon(ended.set_result, None))
        began_s = loop.time()
        await ended
        assert loop.time() - began_s < DEADLINE_S / 2  # not woken by its deadline alone

    run(main)


def test_loop_does_not_outsleep_a_timer_that_was_set_at_a_turn_end() -> None:
    """A deadline set there would come as late as the next event."""

    async def main(loop: TurnLoop) -> None:
        ended = loop.create_future()
        loop.call_at_turn_end(lambda: loop.call_later(0.001, ended.set_result, None))
        began_s = loop.time()
        await ended
        assert loop.time() - began_s < DEADLINE_S / 2

    run(main)


def test_error_at_a_turn_end_is_reported_and_keeps_no_other_callback_from_running() -> None:
    """A mistake in one request must not lose the answers of the others, nor go unseen."""
    reported: list[Any] = []

    def fail() -> None:
        raise ZeroDivisionError("a mistake")

    async def main(loop: TurnLoop) -> None:
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        ended = loop.create_future()
        loop.call_at_turn_end(fail)
        loop.call_at_turn_end(lambda: ended.set_result(None))
        await ended

    run(main)
    assert [type(error) for error in reported] == [ZeroDivisionError]


def test_turn_ends_that_go_on_and_on_let_sockets_have_their_turn() -> None:
    """A reader that is answered again and again must not keep the loop from all others."""

    async def main(loop: TurnLoop) -> None:
        one, other = socket.socketpair()
        with one, other:
            readable = loop.create_future()

            def again() -> None:
                if not readable.done():
                    loop.call_at_turn_end(again)

            loop.call_at_turn_end(again)
            loop.add_reader(other.fileno(), readable.set_result, None)
            one.send(b"x")
            await readable
            loop.remove_reader(other.fileno())

    run(main)


def test_turn_end_of_another_loop_is_its_next_turn() -> None:
    """Tests and programs of users run these parts on loops of their own."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        at_turn_end(loop)(lambda: ended.set_result(None))
        await asyncio.wait_for(ended, DEADLINE_S)

    asyncio.run(main())


def test_timer_is_not_late_by_the_length_of_the_turn_end() -> None:
    """The time to wait was found before the callbacks: a lease would be renewed later by what they take."""

    async def main(loop: TurnLoop) -> None:
        fired = loop.create_future()
        began_s = loop.time()
        loop.call_later(1.0, lambda: fired.set_result(loop.time() - began_s))
        loop.call_at_turn_end(lambda: time.sleep(0.9))
        assert await fired < 1.8

    run(main)


def test_first_callback_of_a_turn_end_runs_before_sockets_are_looked_at_however_long_others_last() -> None:
    """The listeners' share of a turn would count as used up in the next one."""
    done: list[str] = []

    async def main(loop: TurnLoop) -> None:
        ended = loop.create_future()

        def long() -> None:
            done.append("long")
            time.sleep(2 * TURN_END_S)
            loop.call_first_at_turn_end(lambda: done.append("first"))

        loop.call_first_at_turn_end(lambda: done.append("before"))
        loop.call_at_turn_end(long)
        loop.call_at_turn_end(lambda: ended.set_result(None))
        await ended

    run(main)
    assert done == ["before", "long", "first"]
