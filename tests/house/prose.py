"""Find what this project does not say in docstrings, comments, log lines and error texts.

A reader searches for the domain's words: leader, member, principal, epoch, offset. A relative clause that
stands for one of them ("whoever leads") hides it, so the subject or object of a sentence is a noun.
`make check` runs this module, which prints `file:line: phrase` and fails if there is any.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

REPOSITORY: Final = Path(__file__).parents[2]
TREES: Final = ("sparklog", "driver", "executor", "jobs")

BANNED: Final = re.compile(
    r"""
    (?:(?:\A|[.!?:;]["')]?\s+|\n\s*\n)\s*(?:[-*]\s+)?(?P<opening>(?:Who|Whom|What|Whoever)\b))
    | (?P<phrase>
        \b(?:is|are)\s+told\b | \bis\s+to\b | \banew\b | \bnobody\b | \bsomebody\b | \b(?:of|by)\s+whom\b
        | \bwhoever\b | \bwhatever\b | \b(?:he|his|him)\b
        | \A(?:Have|Has)\ | \A(?:Return|Yield)\ (?:of|whom?)\ | \A(?:Return|Yield)\ as\ what\b
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)


class Prose(NamedTuple):
    """A docstring, a block of comments or another text, and the line on which it begins."""

    line: int
    text: str


class Finding(NamedTuple):
    """A banned phrase."""

    line: int
    phrase: str


def findings(source: str) -> list[Finding]:
    """Return the banned phrases of a module, in the order of their lines."""
    found = [
        Finding(prose.line + prose.text.count("\n", 0, match.start(group)), _shown(match[group]))
        for prose in (*_texts(source), *_comments(source))
        for match in BANNED.finditer(prose.text)
        for group in [match.lastgroup or ""]
        if not (group == "opening" and match[group].islower())
    ]
    return sorted(found)


def _shown(phrase: str) -> str:
    return " ".join(phrase.split())


def _texts(source: str) -> Iterator[Prose]:
    """Yield the strings of more than one word, with an ellipsis for each replacement field of an f-string."""
    parts = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
            texts = [each.value if isinstance(each, ast.Constant) else "…" for each in node.values]
            yield Prose(node.lineno, "".join(map(str, texts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield from [Prose(node.lineno, node.value)] if " " in node.value.strip() else ()


def _comments(source: str) -> Iterator[Prose]:
    """Yield the blocks of adjacent comment lines, without their number signs."""
    lines: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and lines:
            yield Prose(first, "\n".join(lines))
            lines.clear()
        first, last = (first if lines else token.start[0]), token.start[0]
        lines.append(token.string.removeprefix("#").strip())
    if lines:
        yield Prose(first, "\n".join(lines))


def checked_modules(root: Path = REPOSITORY) -> Iterator[Path]:
    """Yield the modules of the product that are checked; those of the three links below sparklog once."""
    for tree in TREES:
        for module in sorted((root / tree).rglob("*.py")):
            links = (root / "sparklog" / each for each in TREES[1:])
            if not any(module.is_relative_to(path) for path in links):
                yield module


def main() -> None:
    """Print the findings in the paths of the command line; without any, in all checked modules."""
    chosen = [module for path in sys.argv[1:] for module in sorted(Path(path).rglob("*.py")) or [Path(path)]]
    found = [
        f"{module.resolve().relative_to(REPOSITORY)}:{each.line}: {each.phrase}"
        for module in chosen or checked_modules()
        for each in findings(module.read_text())
    ]
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
