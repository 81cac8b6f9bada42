"""Tests over the compiled wheel: `python -m tests.compiled [arguments of pytest]`.

The wheel with the brokers' hot modules as extensions (`make package COMPILED=1`) is installed into an
environment of its own, and the tests run beside it from a copy, since in the repository the sources come
first on the path.

A compiled class cannot be derived from, and neither it nor its methods can be replaced or traced. A test that
does so has the mark `interpreted` and is left out here.
"""

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.wheels import install

REPOSITORY: Final = Path(__file__).parents[1]
USUAL: Final = (
    "tests/unit/executor/api/fetch",
    "tests/unit/executor/api/produce",
    "tests/unit/executor/fetching",
    "tests/unit/executor/partitions",
    "tests/unit/executor/records",
    "tests/unit/sparklog/node/calling",
    "tests/unit/sparklog/node/serving",
    "tests/unit/sparklog/node/storage",
    "tests/unit/sparklog/protocol/codec/fixed",
    "tests/unit/sparklog/protocol/records",
    "tests/compat/test_librdkafka_produce_consume.py",
)
"""The tests of the compiled modules, and a cluster that serves a client."""
_COPIED: Final = ("benchmarks", "conf", "pyproject.toml", "tests")


def compiled_modules() -> list[str]:
    """Return the names of the modules that pyproject.toml lists for compilation."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]
    return [path.strip("/").removesuffix(".py").replace("/", ".") for path in hook["include"]]


def build() -> Path:
    """Return the compiled wheel, after it was built where the sources have changed; that takes minutes."""
    subprocess.run(["make", "build/compiled/.ready"], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = (REPOSITORY / "dist" / "compiled").glob("sparklog-*.whl")
    return wheel


def set_up(directory: Path) -> Path:
    """Install the wheel and copy the tests into `directory`; return the interpreter."""
    for name in _COPIED:
        source = REPOSITORY / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, directory / name)
    return install(directory / "environment", build())


def run_tests(python: Path, directory: Path, arguments: Sequence[str]) -> int:
    """Return the exit status of pytest over the installed wheel."""
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-m", "not interpreted and not long"]
    return subprocess.run([*command, *arguments], cwd=directory, check=False).returncode


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sparklog-compiled-") as directory:
        return run_tests(set_up(Path(directory)), Path(directory), sys.argv[1:] or USUAL)


if __name__ == "__main__":
    sys.exit(main())
