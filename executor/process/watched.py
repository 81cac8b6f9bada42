"""The broker's side of its watchdog (`watchdog.py`): starts it, and holds the pipe whose end ends it."""

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
    """Run the watchdog during the block: it kills this process after a stop of `limit_ms`.

    Without a watchdog, where it cannot be started, the block runs all the same.
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
            # A session of its own, since Spark's daemon signals the process group: the watchdog must end with
            # this process, not before.
            start_new_session=True,
        )
    except OSError as error:
        logger.info("No watchdog: clients of a frozen broker wait for their own timeouts: %s", error)
        return None
