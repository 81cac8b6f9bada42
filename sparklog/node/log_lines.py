"""The log of a process of the cluster, written by a thread of its own.

The reader of a process's output may stop reading: a terminal halted by Ctrl-S, a pager, a supervisor that
hangs. A write then blocks, and with it the event loop, in the middle of a decision, until the leases expire.
Here lines wait in a queue; lines that find it full are dropped and counted.

Messages may contain names chosen by clients: a message is one line, so that a name cannot forge another line.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from logging.handlers import QueueHandler
from queue import Full, Queue
from typing import Final, TextIO

from sparklog.node.printable import printable

MAX_WAITING: Final = 10_000
"""The queue's bound, in lines."""
END_TIMEOUT_S: Final = 2.0
"""The time at the end to write the remaining lines."""

_Waiting = Queue[logging.LogRecord | None]


@contextlib.contextmanager
def written_aside(
    stream: TextIO, level: int, line_format: str, *, max_waiting: int = MAX_WAITING
) -> Iterator[None]:
    """Write the whole log to a stream, and nowhere else; restore the handlers afterwards.

    Args:
        stream: the destination; flushed after each line.
        level: of the root logger, as in `logging`.
        line_format: as of `logging.Formatter`.
        max_waiting: the lines that wait while the stream blocks.
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
    """Formats each message as one line; tracebacks, whose text clients do not choose, follow unchanged."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = printable(record.message)
        return super().formatMessage(record)


class _Lines(QueueHandler):
    """Queues lines, and a line with the number of dropped ones."""

    def __init__(self, waiting: _Waiting, formatter: logging.Formatter) -> None:
        super().__init__(waiting)
        self.setFormatter(formatter)
        self._waiting = waiting
        self._left_out = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line, or count it as dropped."""
        try:
            if self._left_out:
                self._waiting.put_nowait(self._confession())
                self._left_out = 0
            self._waiting.put_nowait(record)
        except Full:
            self._left_out += 1

    def end(self) -> None:
        """Queue the end of the log, if the queue has room in time."""
        with contextlib.suppress(Full):
            if self._left_out:
                self._waiting.put(self._confession(), timeout=END_TIMEOUT_S)
            self._waiting.put(None, timeout=END_TIMEOUT_S)

    def _confession(self) -> logging.LogRecord:
        template = "%d log lines are missing here: the output was not read in time"
        said = logging.LogRecord(__name__, logging.WARNING, "", 0, template, (self._left_out,), None)
        record: logging.LogRecord = self.prepare(said)
        return record
