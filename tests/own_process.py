"""Tests that count objects or memory of their process, in one where no thread of another test allocates."""

import functools
import importlib
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor


def in_own_process(test: Callable[[], None]) -> Callable[[], None]:
    """Run a test without arguments in a new process."""

    @functools.wraps(test)
    def run() -> None:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
            processes.submit(_call, test.__module__, test.__name__).result()

    return run


def _call(module: str, name: str) -> None:
    getattr(importlib.import_module(module), name).__wrapped__()
