"""The examples in docstrings say what the code does."""

import doctest
import importlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("sparklog", "executor", "driver", "jobs")
WITH_EXAMPLES = [
    ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
    for package in PACKAGES
    for file in sorted((REPOSITORY / package).rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_of_a_module_are_true(module: str) -> None:
    """What a reader tries first is the example."""
    name = module.removesuffix(".__init__")
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted
    assert not failed
