"""The documentation's notebooks as the tests see them: their cells, run in order, and what each shows.

A cell shows what it prints and then, like a notebook, the value of its last line if that is not None. That
is all that these have, so no Jupyter is needed to run it as one. `REWRITE_NOTEBOOK=1` writes what is shown
into the file instead of comparing it; look at the difference before you commit it.
"""

import ast
import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any, Final

from tests.unit.docs.pages import REPOSITORY

NOTEBOOKS: Final = tuple(sorted((REPOSITORY / "docs").glob("*.ipynb")))
REWRITE: Final = "REWRITE_NOTEBOOK"


def read(path: Path) -> dict[str, Any]:
    """Return the notebook, in Jupyter's format."""
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def run(path: Path, namespace: dict[str, Any]) -> None:
    """Run every cell of code in order, and compare what it shows with what the file says it shows."""
    document = read(path)
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, start=1):
        shown = outputs("".join(cell["source"]), count, namespace, f"{path.name}:{cell['id']}")
        if REWRITE in os.environ:
            cell["outputs"], cell["execution_count"] = shown, count
        assert cell["outputs"] == shown, f"{path.name}, {cell['id']}: {REWRITE}=1 writes what it shows now"
    if REWRITE in os.environ:
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def outputs(source: str, count: int, namespace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Run a cell; return what it shows, in Jupyter's format."""
    statements = ast.parse(source).body
    last = statements[-1] if isinstance(statements[-1], ast.Expr) else None
    shown: list[dict[str, Any]] = []
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        for statement in statements:
            if statement is last:
                value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            else:
                exec(compile(ast.Module([statement], []), name, "exec"), namespace)
    if printed.getvalue():
        shown.append(
            {"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        shown.append(
            {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        )
    return shown
