"""Requests on which this and Apache Kafka once disagreed, with Kafka's answers: see `__main__`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.compat.authorization.sides import Side, sparklog
from tests.compat.authorization.stated import Asked, acl_of

CORPUS: Final[list[dict[str, Any]]] = json.loads(Path(__file__).with_name("corpus.json").read_text())


@pytest.fixture(scope="module")
def side() -> Iterator[Side]:
    """A cluster set up as the one that Kafka's answers are of."""
    with sparklog(open_to_all=False) as running:
        yield running


def test_requests_of_the_corpus_are_answered_as_kafka_answers_them(side: Side) -> None:
    """What was mended once must not come back."""
    for known in CORPUS:
        side.set_acls(frozenset(map(acl_of, known["acls"])))
        question = Asked(known["user"], known["api"], known["version"], known["fields"])
        answer = side.answer(question)
        assert answer == known["kafka"], known
        side.restore(question, answer)
