"""Tests that count objects or memory of their process, in one that is forked where a broker's code is loaded.

Loading it takes two seconds of CPU in a new process. What is loaded is out of sight of the collector; a test
of the collector itself has a process without it (`own_process.py`).
"""

import functools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from tests.broker_process import prepare
from tests.own_process import Fixtures, call_unwrapped


def in_forked_process(test: Callable[Fixtures, None]) -> Callable[Fixtures, None]:
    """Run a test in a new process, with fixtures that can be pickled."""

    @functools.wraps(test)
    def run(*arguments: Fixtures.args, **fixtures: Fixtures.kwargs) -> None:
        prepare()
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as processes:
            named = test.__module__, test.__name__
            processes.submit(call_unwrapped, *named, *arguments, **fixtures).result()

    return run
