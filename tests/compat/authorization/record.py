"""Ask Apache Kafka anew what `corpus.json` has of it.

    python -m tests.compat.authorization.record [--seed 1]

Of the corpus what has once differed stays (`found`); beside it there are, of each API, answers of several
kinds, so that what agrees is known to agree where Kafka is not at hand.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Set
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from sparklog.node.acls.acl import Acl
from tests.compat.authorization.differences import has_known_differences
from tests.compat.authorization.questions import acl_sets, questions
from tests.compat.authorization.sides import Side, apache_kafka
from tests.compat.authorization.stated import Asked, acl_of

CORPUS: Final = Path(__file__).with_name("corpus.json")
KINDS: Final = 3
"""Of how many kinds answers are kept of each API."""
MOST_ACLS: Final = 4
CASES: Final = 400
QUESTIONS_A_CASE: Final = 8


def main() -> int:
    """Write the corpus."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = [known for known in json.loads(CORPUS.read_text()) if known["found"]]
    with (
        tempfile.TemporaryDirectory(prefix="authorization-") as directory,
        apache_kafka(Path(directory), open_to_all=False) as kafka,
    ):
        asked = [
            (
                frozenset(map(acl_of, known["acls"])),
                Asked(*(known[name] for name in Asked._fields)),
            )
            for known in found
        ]
        corpus = [_entry(kafka, acls, question, found=True) for acls, question in asked]
        corpus += _of_each_kind(kafka, arguments.seed)
    lines = ",\n".join(json.dumps(entry) for entry in corpus)
    CORPUS.write_text(f"[\n{lines}\n]\n")
    return 0


def _of_each_kind(kafka: Side, number: int) -> list[dict[str, Any]]:
    kinds: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)

    @seed(number)
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(acl_sets(MOST_ACLS), st.lists(questions(), min_size=QUESTIONS_A_CASE, max_size=QUESTIONS_A_CASE))
    def ask(acls: Set[Acl], asked: list[Asked]) -> None:
        for question in asked:
            if len(kinds[question.api]) == KINDS or has_known_differences(question):
                continue
            entry = _entry(kafka, acls, question, found=False)
            kinds[question.api].setdefault(_kind(entry["kafka"]), entry)

    ask()
    return [entry for of_api in kinds.values() for entry in of_api.values()]


def _entry(kafka: Side, acls: Set[Acl], question: Asked, *, found: bool) -> dict[str, Any]:
    kafka.set_acls(acls)
    answer = kafka.answer(question)
    kafka.restore(question, answer)
    return {
        "found": found,
        "acls": [list(acl) for acl in sorted(acls)],
        **question._asdict(),
        "kafka": answer,
    }


def _kind(answer: Any) -> str:
    """Return which errors an answer has."""
    if isinstance(answer, dict):
        errors = {value for name, value in answer.items() if name.endswith("error_code")}
        return "+".join(sorted(errors | {_kind(value) for value in answer.values()} - {""}))
    if isinstance(answer, list):
        return "+".join(sorted({_kind(item) for item in answer} - {""}))
    return ""


if __name__ == "__main__":
    sys.exit(main())
