"""The wheel of `make package COMPILED=1`, in a new environment."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.compiled import USUAL, build, compiled_modules, run_tests, set_up

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

_FILES = """
import importlib, json, sys
print(json.dumps({name: importlib.import_module(name).__file__ for name in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def python(directory: Path) -> Path:
    return set_up(directory)


def test_listed_modules_are_extensions_once_the_wheel_is_installed(python: Path, directory: Path) -> None:
    """A module that is interpreted in silence takes the CPU that the wheel promises to save."""
    names = compiled_modules()
    output = subprocess.run(
        [str(python), "-c", _FILES, *names], cwd=directory / "environment", check=True, capture_output=True
    ).stdout
    files = json.loads(output)
    assert [name for name in names if not files[name].endswith(".so")] == []


def test_wheel_on_the_path_is_imported_from_its_sources(python: Path, tmp_path: Path) -> None:
    """Spark's `--py-files` puts archives on the path, out of which nothing loads an extension."""
    names = compiled_modules()
    code = f"import sys; sys.path.insert(0, {str(build())!r})\n{_FILES}"
    output = subprocess.run(
        [str(python), "-c", code, *names], cwd=tmp_path, check=True, capture_output=True
    ).stdout
    files = json.loads(output)
    assert {Path(files[name]).suffix for name in names} == {".py"}


def test_tests_of_compiled_modules_pass_over_the_wheel(python: Path, directory: Path) -> None:
    """The same tests hold both forms of a module, and a cluster of the compiled one serves a client."""
    assert run_tests(python, directory, USUAL) == 0
