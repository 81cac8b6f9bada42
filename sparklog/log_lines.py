"""What a process of the cluster logs, written by a thread of its own.

Whoever reads a process's output may stop reading: a terminal that Ctrl-S has halted, a pager, a supervisor
that hangs. A write then waits for as long, and with it whoever logs: the event loop, in the middle of a
decision, until the leases run out. Here lines wait in a queue; those that find it full are left out, counted.

What is logged may have names in it that anybody has chosen: a message is one line, and he forges no other.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from logging.handlers import QueueHandler
from queue import Full, Queue
from typing import Final, TextIO

from sparklog.printable import printable

MAX_WAITING: Final = 10_000
"""Lines that wait to be written."""
END_TIMEOUT_S: Final = 2.0
"""How long the end waits for what is still to be written."""

_Waiting = Queue[logging.LogRecord | None]


@contextlib.contextmanager
def written_aside(
    stream: TextIO, level: int, line_format: str, *, max_waiting: int = MAX_WAITING
) -> Iterator[None]:
    """Have all that is logged written to a stream, and to nothing else; afterwards all is as before.

    Args:
        stream: where lines go; it is flushed after each.
        level: of the root logger, as in `logging`.
        line_format: as of `logging.Formatter`.
        max_waiting: how many lines wait while the stream takes none.
    """
    waiting: _Waiting = Queue(max_waiting)
    writer = threading.Thread(
        target=_write, args=(waiting, logging.StreamHandler(stream)), name="log lines", daemon=True
    )
    writer.start()
    lines = _Lines(waiting, _OneLine(line_format))
    root = logging.getLogger()
    handlers_before, level_before = list(root.handlers), root.level
    root.handlers[:] = [lines]
    root.setLevel(level)
    try:
        yield
    finally:
        root.handlers[:] = handlers_before
        root.setLevel(level_before)
        lines.end()
        writer.join(END_TIMEOUT_S)


def _write(waiting: _Waiting, handler: logging.Handler) -> None:
    while (record := waiting.get()) is not None:
        handler.handle(record)


class _OneLine(logging.Formatter):
    """Lays messages out on a line each; tracebacks, which are nobody's to choose, follow as they are."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line of a record."""
        record.message = printable(record.message)
        return super().formatMessage(record)


class _Lines(QueueHandler):
    """Lays lines down to be written, and where some are left out one that says so."""

    def __init__(self, waiting: _Waiting, formatter: logging.Formatter) -> None:
        super().__init__(waiting)
        self.setFormatter(formatter)
        self._waiting = waiting
        self._left_out = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Lay a line down, or count it."""
        try:
            if self._left_out:
                self._waiting.put_nowait(self._confession())
                self._left_out = 0
            self._waiting.put_nowait(record)
        except Full:
            self._left_out += 1

    def end(self) -> None:
        """Say that no line follows, if that is heard in time."""
        with contextlib.suppress(Full):
            if self._left_out:
                self._waiting.put(self._confession(), timeout=END_TIMEOUT_S)
            self._waiting.put(None, timeout=END_TIMEOUT_S)

    def _confession(self) -> logging.LogRecord:
        told = "%d lines are left out here: nobody read the ones before"
        said = logging.LogRecord(__name__, logging.WARNING, "", 0, told, (self._left_out,), None)
        record: logging.LogRecord = self.prepare(said)
        return record
