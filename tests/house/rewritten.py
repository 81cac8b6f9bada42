"""Compile the tests as pytest does on their first import, and the other modules of `tests` as Python does.

Each process of the tests loads all of them. `make` runs this once for all processes, since making pytest's
assertions takes longer than loading. The functions are pytest's own and may change: `make` goes on without
them, and each process of the first run compiles for itself.
"""

import compileall
from pathlib import Path
from typing import Final

from _pytest.assertion import AssertionState, rewrite
from _pytest.config import get_config

TESTS: Final = Path(__file__).parents[1]


def main() -> None:
    config = get_config()
    state = AssertionState(config, "rewrite")
    for file in TESTS.rglob("*.py"):
        if not (file.name.startswith("test_") or file.name == "conftest.py"):
            compileall.compile_file(file, quiet=2)
            continue
        directory = rewrite.get_cache_dir(file)
        rewrite.try_makedirs(directory)
        written = directory / f"{file.stem}{rewrite.PYC_TAIL}"
        status, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(state, code, status, written)


if __name__ == "__main__":
    main()
