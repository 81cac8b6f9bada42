"""The messages of the controller's process to its driver, written by a thread of its own.

A driver whose interpreter is busy does not read. So the process does not wait for it: messages wait in a
queue. Log lines that find it full are dropped and counted; answers are bounded by the driver's queries; of
the states only the newest waits.
"""

import logging
import socket
import threading
import traceback
from collections import deque
from typing import Final

from sparklog.driver.process.codec import encoded
from sparklog.driver.process.frames import MAX_FRAME_BYTES, send_frame
from sparklog.driver.process.messages import ControllerState, FromChild, LogLine, NotMade
from sparklog.node.printable import printable

logger = logging.getLogger(__name__)

MAX_WAITING_LINES: Final = 10_000
MAX_WAITING: Final = 1_000
"""Other messages than log lines."""


class Outgoing:
    """Queued messages; `send` may be called from any thread, and never blocks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._lines: deque[LogLine] = deque()
        self._messages: deque[FromChild] = deque(maxlen=MAX_WAITING)
        self._state: ControllerState | None = None
        self._left_out = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="sparklog outgoing", daemon=True)
        self._thread.start()

    def send(self, message: FromChild) -> None:
        with self._changed:
            match message:
                case LogLine() if len(self._lines) >= MAX_WAITING_LINES:
                    self._left_out += 1
                case LogLine():
                    self._lines.append(message)
                case ControllerState():
                    self._state = message
                case _:
                    self._messages.append(message)
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Send the queued messages, if the driver reads them within the time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while (message := self._next()) is not None:
                frame = encoded(message)
                if len(frame) > MAX_FRAME_BYTES:
                    frame = encoded(_too_large(message, len(frame)))
                send_frame(self._connection, frame)
        except OSError:
            # The driver has ended: the thread that reads from it ends the process.
            with self._changed:
                self._closed = True

    def _next(self) -> FromChild | None:
        with self._changed:
            while True:
                # Lines first: they are about earlier events.
                if self._lines:
                    return self._lines.popleft()
                if self._left_out:
                    left_out, self._left_out = self._left_out, 0
                    return _line(
                        logging.LogRecord(
                            __name__,
                            logging.WARNING,
                            __file__,
                            0,
                            "%d log lines are missing here: the driver did not read them in time",
                            (left_out,),
                            None,
                        )
                    )
                if self._state is not None:
                    state, self._state = self._state, None
                    return state
                if self._messages:
                    return self._messages.popleft()
                if self._closed:
                    return None
                self._changed.wait()


def _too_large(message: FromChild, length: int) -> FromChild:
    logger.warning("An answer of %d bytes is not sent to the driver", length)
    return NotMade(getattr(message, "number", 0))


class LogRelay(logging.Handler):
    def __init__(self, outgoing: Outgoing) -> None:
        super().__init__()
        self._outgoing = outgoing

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._outgoing.send(_line(record))
        except Exception:  # of a record whose arguments don't fit: logging reports it, and goes on
            self.handleError(record)


def _line(record: logging.LogRecord) -> LogLine:
    trace = None
    if record.exc_info and record.exc_info[1] is not None:
        trace = "".join(traceback.format_exception(record.exc_info[1]))
    return LogLine(
        name=record.name,
        level=record.levelno,
        message=printable(record.getMessage()),
        created_s=record.created,
        thread=record.threadName or "",
        path=record.pathname,
        line=record.lineno,
        traceback=trace,
    )
