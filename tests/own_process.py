"""Tests that count objects or memory of their process, in one where no thread of another test allocates."""

import functools
import importlib
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec

Fixtures = ParamSpec("Fixtures")


def in_own_process(test: Callable[Fixtures, None]) -> Callable[Fixtures, None]:
    """Run a test in a new process, with fixtures that can be pickled."""

    @functools.wraps(test)
    def run(*arguments: Fixtures.args, **fixtures: Fixtures.kwargs) -> None:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
            processes.submit(_call, test.__module__, test.__name__, *arguments, **fixtures).result()

    return run


def _call(module: str, name: str, *arguments: object, **fixtures: object) -> None:
    getattr(importlib.import_module(module), name).__wrapped__(*arguments, **fixtures)
