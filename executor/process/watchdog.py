"""Ends a broker that was stopped (SIGSTOP) and not continued before its lease may have run out.

A frozen leader is worse than a dead one. Others lead its partitions as soon as its lease has run out, but its
clients wait on connections that the kernel keeps open, for as long as their own request timeouts: a minute
with librdkafka's default. Nobody but a process of the same machine can end them. So each broker has a
watchdog: a small process that hears a beat through a pipe several times a second, and kills the
broker when none came for the given time *and* the kernel says that it is stopped. A broker that is only slow,
waits for its disk or is looked at with a debugger is left alone.

Run as a script, by path and with nothing but the standard library, so that it costs little:
`python -I -S watchdog.py <process id> <limit in milliseconds>`; it ends when its standard input does.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

__all__ = ["Silence", "is_stopped", "main"]

LOOK_MS: Final = 100
LONGEST_LOOK_MS: Final = 1_000
"""A longer time between two looks means that the watchdog was not running either."""


class Silence:
    """For how long nothing was heard, in time in which somebody was there to listen. Pure."""

    def __init__(self, limit_ms: int, now_ms: int) -> None:
        self._limit_ms = limit_ms
        self._since_ms = now_ms
        self._looked_ms = now_ms

    def heard(self, now_ms: int) -> None:
        """There was a beat."""
        self._since_ms = self._looked_ms = now_ms

    def is_too_long(self, now_ms: int) -> bool:
        """Look: whether the silence has reached its limit."""
        gap_ms = now_ms - self._looked_ms
        self._looked_ms = now_ms
        if gap_ms > LONGEST_LOOK_MS:
            self._since_ms = min(now_ms, self._since_ms + gap_ms)
        return now_ms - self._since_ms >= self._limit_ms


def is_stopped(process_id: int) -> bool:
    """Return whether a signal has stopped the process.

    Raises:
        OSError: there is no such process, or no Linux to ask.
    """
    # The second field is the command's name, in parentheses, and may hold anything.
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def main() -> None:
    """Watch the parent until it ends, one way or the other."""
    process_id, limit_ms = int(sys.argv[1]), int(sys.argv[2])
    silence = Silence(limit_ms, _now_ms())
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN)
    while os.getppid() == process_id:
        if poll.poll(LOOK_MS):
            if not os.read(sys.stdin.fileno(), 4096):
                return
            silence.heard(_now_ms())
        elif silence.is_too_long(_now_ms()) and is_stopped(process_id):
            print(
                f"broker process {process_id} has been stopped for {limit_ms} ms and is killed: "
                "its clients would wait for it",
                file=sys.stderr,
            )
            os.kill(process_id, signal.SIGKILL)
            return


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


if __name__ == "__main__":
    main()
