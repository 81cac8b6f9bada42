"""Some of the batches that `python -m tests.compat.batches` sends to both by the thousand."""

from pathlib import Path
from typing import Final

import pytest

from sparklog.node.clocks import wall_clock_ms
from sparklog.protocol.errors import ErrorCode
from tests.cluster import LocalCluster
from tests.compat.batches.cases import Case, cases
from tests.compat.batches.comparison import Answer, asked_of, comparison
from tests.compat.kafka_node import kafka_node
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.recorded import recorded

CASES = 400
SEED = 31
ANSWERS: Final = Path(__file__).with_name("answers.json")


@pytest.mark.long
def test_batches_at_random_are_taken_and_refused_as_kafka_does_and_what_is_taken_can_be_read(
    kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    """A batch that is acknowledged, and that some reader cannot read, ends all consumers of its partition."""
    sent = list(cases(SEED, CASES, wall_clock_ms()))
    stated = recorded(ANSWERS, [case.name for case in sent], lambda: ask(sent, tmp_path))
    answers = iter([Answer(ErrorCode[error], tuple(refused), -1, None) for error, refused in stated])
    with LocalCluster(brokers=1) as cluster, comparison(cluster, lambda _: next(answers)) as compared:
        for case in sent:
            compared.compare(case)
        compared.consume_all(cluster.bootstrap_servers)
    assert compared.disagreements == []


def ask(sent: list[Case], directory: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Return the statements of a node of Kafka's about the batches."""
    with kafka_node(directory, {}) as node, asked_of(node) as kafkas_answer:
        return [kafkas_answer(case).stated for case in sent]
