"""The broker's side of its watchdog (`watchdog.py` beside it): starts it, and beats."""

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from executor.process import watchdog

__all__ = ["beat"]

BEAT_INTERVAL_MS: Final = 200

logger = logging.getLogger(__name__)


async def beat(limit_ms: int) -> None:
    """Be watched until cancelled: stopped for `limit_ms`, this process is killed.

    Returns at once where there is no watchdog to be had, and when it has ended before its time.
    """
    process = _start(limit_ms)
    if process is None:
        return
    assert process.stdin is not None, "it was asked for"
    pipe = process.stdin.fileno()
    os.set_blocking(pipe, False)
    try:
        while True:
            try:
                os.write(pipe, b".")
            except BlockingIOError:
                pass  # the watchdog itself is stopped
            except OSError as error:
                logger.warning("The watchdog has ended: %s", error)
                return
            await asyncio.sleep(BEAT_INTERVAL_MS / 1000)
    finally:
        process.kill()
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
