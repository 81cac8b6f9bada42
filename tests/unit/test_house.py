"""That what is looked for is found: tests lie where the code does, and no file grows into a lump.

Which package may import which, and that none do in a circle, import-linter checks (`make check`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

UNIT: Final = Path(__file__).parent
REPOSITORY: Final = UNIT.parent.parent
SIDES: Final = ("sparklog", "driver", "executor", "jobs")

LONGEST_MODULE_LINES: Final = 450
REASON_FOR_LENGTH: Final = "# Long because "
"""The first words of a module that exceeds that."""
LONGEST_COMPOSITION_LINES: Final = 150
MOST_PARAMETERS: Final = 8
"""Of a constructor, `self` not counted. Dataclasses and named tuples have as many fields as their data: each
is named where one is made."""


def folders_with_tests() -> Iterator[Path]:
    """Yield the folders of unit tests that are to mirror a package, as paths below `UNIT`."""
    for folder in sorted({test.parent.relative_to(UNIT) for test in UNIT.rglob("test_*.py")}):
        if folder.parts and folder.parts[0] in SIDES:
            yield folder


@pytest.mark.parametrize("folder", list(folders_with_tests()), ids=str)
def test_unit_tests_lie_in_a_folder_that_a_package_has(folder: Path) -> None:
    """Whoever reads a module finds its tests without a search, also after the module has moved."""
    assert (REPOSITORY / folder / "__init__.py").is_file()


@pytest.mark.parametrize("side", SIDES)
def test_module_is_no_longer_than_one_idea_takes(side: str) -> None:
    """A class that knows everything begins as a file to which one more thing was added; one idea says so."""
    texts = {
        str(module.relative_to(REPOSITORY)): module.read_text()
        for module in (REPOSITORY / side).rglob("*.py")
    }
    assert {
        module: text.count("\n")
        for module, text in texts.items()
        if text.count("\n") > LONGEST_MODULE_LINES and not text.startswith(REASON_FOR_LENGTH)
    } == {}
    unneeded = [
        module
        for module, text in texts.items()
        if text.startswith(REASON_FOR_LENGTH) and text.count("\n") <= LONGEST_MODULE_LINES
    ]
    assert unneeded == [], "these give a reason and need none"


@pytest.mark.parametrize("side", SIDES)
def test_constructor_takes_no_more_than_one_can_tell_apart(side: str) -> None:
    """A dozen arguments are parts that belong together in groups that have no name yet."""
    found = {
        f"{module.relative_to(REPOSITORY)}: {name}": count
        for module in (REPOSITORY / side).rglob("*.py")
        for name, count in parameters_of_constructors(ast.parse(module.read_text()))
    }
    assert {name: count for name, count in found.items() if count > MOST_PARAMETERS} == {}


def parameters_of_constructors(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each class that has an `__init__`, and how many arguments that takes."""
    for owner in ast.walk(tree):
        if isinstance(owner, ast.ClassDef):
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    taken = method.args
                    yield owner.name, len((*taken.posonlyargs, *taken.args, *taken.kwonlyargs)) - 1


def test_broker_composes_and_does_nothing_else() -> None:
    """What a broker consists of can be read on one page."""
    assert (REPOSITORY / "executor" / "broker.py").read_text().count("\n") < LONGEST_COMPOSITION_LINES
