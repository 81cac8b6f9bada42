"""Ask a cluster of ours and Apache Kafka the same, at random, while their ACLs change.

    python -m tests.compat.authorization --cases 500 [--seed 1] [--disagreements found.json]

A case is a set of ACLs and some requests of two users, of every API that clients have. The answers are to say
the same: what is allowed, what is denied, with which error, item by item, and `authorized_operations`
(`stated.told`). Half of the cases have allow.everyone.if.no.acl.found. What differs is asked again with fewer
ACLs, until none can be left out, and written down with Kafka's answer (`corpus.json` is made of these).
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from sparklog.node.acls.acl import Acl
from tests.broker_process import prepare
from tests.compat.authorization.differences import is_known
from tests.compat.authorization.questions import acl_sets, questions
from tests.compat.authorization.sides import Side, apache_kafka, sparklog
from tests.compat.authorization.stated import Asked

QUESTIONS_A_CASE: Final = (20, 40)
MOST_ACLS: Final = 30
CASES_A_LINE: Final = 20


class Comparison:
    """Both sides, and in what they have differed."""

    def __init__(self, ours: Side, kafka: Side, *, open_to_all: bool) -> None:
        self._sides = (ours, kafka)
        self._open_to_all = open_to_all
        self._at_once = ThreadPoolExecutor(2)
        self.cases = 0
        self.answers: Counter[str] = Counter()
        """How many questions there were of each API."""
        self.refusals = 0
        """How many of them Kafka has refused, or a part of them, for want of a permission."""
        self.known: Counter[str] = Counter()
        """How many answers differ as it is known of them."""
        self.disagreements: dict[str, dict[str, Any]] = {}
        """What differs, of each API one for each way in which it does."""

    def compare(self, acls: Set[Acl], asked: Sequence[Asked]) -> None:
        """Ask both."""
        ours, theirs = self._at_once.map(lambda side: _answers(side, acls, asked), self._sides)
        for question, here, there in zip(asked, ours, theirs, strict=True):
            self.answers[question.api] += 1
            self.refusals += "authorization_failed" in json.dumps(there) or "closed" in there
            if here == there:
                continue
            if known := is_known(question, here, there):
                self.known[known] += 1
            else:
                self._disagree(acls, question, here, there)

    def _disagree(self, acls: Set[Acl], question: Asked, here: Any, there: Any) -> None:
        ours, theirs = self._again(acls, question)
        if ours == theirs:  # it was what had been asked before that made the difference
            print("not again:", _differences(here, there), question, file=sys.stderr, flush=True)
            return
        for acl in sorted(acls):
            ours, theirs = self._again(acls - {acl}, question)
            if ours != theirs and not is_known(question, ours, theirs):
                acls = acls - {acl}
        ours, theirs = self._again(acls, question)
        found = {
            "open_to_all": self._open_to_all,
            "acls": [list(acl) for acl in sorted(acls)],
            **question._asdict(),
            "kafka": theirs,
            "sparklog": ours,
        }
        kind = f"{question.api} {_differences(ours, theirs)}"
        if kind not in self.disagreements:
            print(kind, json.dumps(found), file=sys.stderr, flush=True)
            self.disagreements[kind] = found

    def _again(self, acls: Set[Acl], question: Asked) -> tuple[Any, Any]:
        ((ours,), (theirs,)) = self._at_once.map(lambda side: _answers(side, acls, [question]), self._sides)
        return ours, theirs


def _answers(side: Side, acls: Set[Acl], asked: Sequence[Asked]) -> list[Any]:
    side.set_acls(acls)
    answers = []
    for question in asked:
        answers.append(side.answer(question))
        side.restore(question, answers[-1])
    return answers


def _differences(ours: Any, theirs: Any, path: str = "") -> str:
    """Return where two answers differ first, and how."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            if found := _differences(ours.get(name), theirs.get(name), f"{path}.{name}"):
                return found
        return ""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for here, there in zip(ours, theirs, strict=True):
            if found := _differences(here, there, f"{path}[]"):
                return found
        return ""
    if isinstance(ours, list) and isinstance(theirs, list):
        return f"{path}: {len(ours)} here, {len(theirs)} there"
    return "" if ours == theirs else f"{path}: {ours} here, {theirs} there"


def compare_at_random(comparison: Comparison, cases: int, number: int) -> None:
    """Compare as many cases; the same ones for the same seed."""
    fewest, most = QUESTIONS_A_CASE

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(acl_sets(MOST_ACLS), st.lists(questions(), min_size=fewest, max_size=most))
    def compare(acls: Set[Acl], asked: list[Asked]) -> None:
        comparison.compare(acls, asked)
        comparison.cases += 1
        if comparison.cases % CASES_A_LINE == 0:
            print(f"{comparison.cases} cases", file=sys.stderr, flush=True)

    compare()


def main() -> int:
    """Compare as many cases as were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--disagreements", type=Path, help="where to write them")
    arguments = parser.parse_args()
    prepare()
    found: list[dict[str, Any]] = []
    for open_to_all in (False, True):
        with (
            tempfile.TemporaryDirectory(prefix="authorization-") as directory,
            sparklog(open_to_all=open_to_all) as ours,
            apache_kafka(Path(directory), open_to_all=open_to_all) as kafka,
        ):
            comparison = Comparison(ours, kafka, open_to_all=open_to_all)
            compare_at_random(comparison, arguments.cases // 2, arguments.seed)
        found += comparison.disagreements.values()
        print(
            f"allow.everyone.if.no.acl.found={str(open_to_all).lower()}: "
            f"{comparison.answers.total()} requests of {len(comparison.answers)} APIs, "
            f"{comparison.refusals} refused or partly, "
            f"{len(comparison.disagreements)} disagreements, as is known: "
            f"{dict(comparison.known)} (seed {arguments.seed})",
            flush=True,
        )
    if arguments.disagreements is not None:
        arguments.disagreements.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
