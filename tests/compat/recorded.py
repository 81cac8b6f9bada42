"""Recorded answers of Apache Kafka: a node takes longer to start than what is compared with them.

`make kafka-answers` asks a node again, rewrites the files and fails where one has changed.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.java_libraries import KAFKA_VERSION

ASK: Final = "ASK_KAFKA"
"""The environment variable with which a node is asked again."""
REMEDY: Final = "ask Kafka again with `make kafka-answers`"


def recorded(file: Path, questions: Sequence[str], ask: Callable[[], Sequence[Any]]) -> list[Any]:
    """Return the recorded answers to `questions`, after asking again where that is wanted.

    Raises:
        AssertionError: the file has the answers to other questions, or of another version.
    """
    if os.environ.get(ASK):
        lines = ",\n".join(json.dumps(entry) for entry in zip(questions, ask(), strict=True))
        file.write_text(f'{{"version": "{KAFKA_VERSION}", "answers": [\n{lines}\n]}}\n')
    known = json.loads(file.read_text())
    assert known["version"] == KAFKA_VERSION, f"{file} is of Kafka {known['version']}: {REMEDY}"
    assert [question for question, _ in known["answers"]] == list(questions), f"{file} is old: {REMEDY}"
    return [answer for _, answer in known["answers"]]
