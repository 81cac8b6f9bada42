"""The broker's side of its watchdog (`watchdog.py` beside it): starts it, and holds the pipe it ends with."""

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparklog.executor.process import watchdog

FROZEN_MS: Final = 2_500
"""How long a broker may be stopped before it is killed."""

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def watched(limit_ms: int = FROZEN_MS) -> Iterator[None]:
    """Be watched inside: this process is killed when it was stopped for `limit_ms`.

    It goes unwatched where there is no watchdog to be had.
    """
    process = _start(limit_ms)
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            assert process.stdin is not None, "it was asked for"
            process.stdin.close()
            process.wait()


def _start(limit_ms: int) -> "subprocess.Popen[bytes] | None":
    try:
        watchdog.is_stopped(os.getpid())
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(watchdog.__file__)), str(os.getpid()), str(limit_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # Not in the process group that Spark's daemon signals: it ends with this process, never before.
            start_new_session=True,
        )
    except OSError as error:
        logger.info("No watchdog: clients of a frozen broker wait for their own timeouts: %s", error)
        return None
