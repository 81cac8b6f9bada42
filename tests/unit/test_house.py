"""That what is looked for is found: tests lie where the code does, and composition stays short.

Which package may import which, and that none do in a circle, import-linter checks (`make check`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

UNIT: Final = Path(__file__).parent
REPOSITORY: Final = UNIT.parent.parent
SIDES: Final = ("sparklog", "driver", "executor", "jobs")

LONGEST_COMPOSITION_LINES: Final = 150


def folders_with_tests() -> Iterator[Path]:
    """Yield the folders of unit tests that are to mirror a package, as paths below `UNIT`."""
    for folder in sorted({test.parent.relative_to(UNIT) for test in UNIT.rglob("test_*.py")}):
        if folder.parts and folder.parts[0] in SIDES:
            yield folder


@pytest.mark.parametrize("folder", list(folders_with_tests()), ids=str)
def test_unit_tests_lie_in_a_folder_that_a_package_has(folder: Path) -> None:
    """Whoever reads a module finds its tests without a search, also after the module has moved."""
    assert (REPOSITORY / folder / "__init__.py").is_file()


def test_broker_composes_and_does_nothing_else() -> None:
    """What a broker consists of can be read on one page."""
    assert (REPOSITORY / "executor" / "broker.py").read_text().count("\n") < LONGEST_COMPOSITION_LINES
