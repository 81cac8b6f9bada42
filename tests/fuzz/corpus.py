"""The corpus in the repository: a file a target, an input a line: its name, and the bytes in base 64."""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"


def read_corpus(target: str) -> dict[str, bytes]:
    """Return the inputs of a target by their names."""
    path = CORPUS / f"{target}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: b64decode(data) for name, _, data in (line.partition(" ") for line in lines)}


def write_corpus(target: str, inputs: Iterable[tuple[str, bytes]]) -> None:
    """Replace them; of equal inputs the first is kept."""
    by_bytes: dict[bytes, str] = {}
    for name, data in inputs:
        by_bytes.setdefault(data, name)
    CORPUS.mkdir(exist_ok=True)
    lines = [f"{name} {b64encode(data).decode()}\n" for data, name in by_bytes.items()]
    (CORPUS / f"{target}.txt").write_text("".join(lines))
