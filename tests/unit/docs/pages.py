"""The documentation as the tests see it: its pages, the Python in them, and the code they speak of."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sparklog.spark_versions import PYSPARK, SparkVersion

REPOSITORY = Path(__file__).parents[3]
PAGES = (
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "CHANGELOG.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
)

_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANY_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_EXPECTED = re.compile(r"# -> (.*?)(?: \((.*) before PySpark (\d+\.\d+)\))?$")


class Block(NamedTuple):
    """A block of Python code."""

    page: Path
    line: int
    """The first line of the code in the page."""
    source: str


def blocks(page: Path) -> list[Block]:
    """Return the page's blocks of Python, in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start(1)) + 1, found[1])
        for found in _PYTHON_BLOCK.finditer(text)
    ]


def needs_spark(page: Path) -> bool:
    """Return whether the page's code uses a Spark session."""
    return any(re.search(r"\bspark\b", block.source) for block in blocks(page))


def is_for_a_client(page: Path) -> bool:
    """Return whether the page's code is a Spark Connect client's, in a process of its own."""
    return any(".remote(" in block.source for block in blocks(page))


def prose(page: Path) -> str:
    """Return the page without its code blocks."""
    return _ANY_BLOCK.sub("", page.read_text())


def run(block: Block, namespace: dict[str, Any]) -> None:
    """Execute the code; an expression followed by `# -> result`, there or on the next line, must give it.

    `# -> result (another before PySpark 4.1)` has the result of older versions as well.
    """
    source_lines = block.source.splitlines()
    name = block.page.relative_to(REPOSITORY)
    for statement in ast.parse(block.source).body:
        ast.increment_lineno(statement, block.line - 1)
        end = (statement.end_lineno or statement.lineno) - block.line + 1
        following = source_lines[end] if end < len(source_lines) else ""
        found = _EXPECTED.search(source_lines[end - 1]) or _EXPECTED.match(following)
        if isinstance(statement, ast.Expr) and found is not None:
            result = eval(compile(ast.Expression(statement.value), str(name), "eval"), namespace)
            expected, before, since = found.groups()
            if since is not None and SparkVersion.parse(since) > PYSPARK:
                expected = before
            where = f"{name}:{statement.lineno}"
            assert repr(result) == expected, f"{where} gives {result!r}, the page says {expected}"
        else:
            exec(compile(ast.Module([statement], []), str(name), "exec"), namespace)


def code_spans(text: str) -> Iterator[str]:
    """Yield what stands between backticks; a line break inside counts as a space."""
    for found in re.finditer(r"`([^`]+)`", text):
        yield " ".join(found[1].split())


def definitions(path: Path) -> set[str]:
    """Return the names a module defines at its top: functions, classes, `Class.member`, constants."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        names |= _names(node)
        if isinstance(node, ast.ClassDef):
            for member in ast.walk(node):
                names |= {f"{node.name}.{name}" for name in _names(member)}
    return names


def _names(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case _:
            return set()
