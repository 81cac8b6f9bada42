"""Plays one input, and says what is wrong with it: what was raised, or how long it took."""

import re
import traceback
from time import thread_time
from typing import Final

from tests.fuzz.finding import Finding
from tests.fuzz.targets import Target

MAX_CPU_S: Final = 2.0
"""How long an input may take of a processor. Most take a ten-thousandth of it."""
_PRODUCTION: Final = re.compile("/(sparklog|executor|driver)/")


def play(target: Target, data: bytes) -> None:
    """Give an input to a target.

    Raises:
        Finding: it has taken too long.
        Exception: whatever the target raises is a finding, too.
    """
    began_s = thread_time()
    target(data)
    took_s = thread_time() - began_s
    if took_s > MAX_CPU_S:
        raise Finding(f"it has taken {took_s:.1f} s")


def place_of(error: BaseException) -> str:
    """Return where and as what an error was raised: two inputs with the same have found the same."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, Finding):
        cause = error.__cause__
        return str(error)[:40] if cause is None else place_of(cause)
    ours = [frame for frame in frames if _PRODUCTION.search(frame.filename)] or frames
    return f"{type(error).__name__} at {ours[-1].filename.rpartition('/')[2]}:{ours[-1].lineno}"
