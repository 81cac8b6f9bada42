"""Kafka's console tools, unmodified, on a cluster of ours, and their answers on a node of Kafka's."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from benchmarks.java_libraries import FETCH_TIMEOUT_S
from tests.cluster import LocalCluster
from tests.compat.console_tools import COMMANDS, TOPIC, Command, shape_of
from tests.compat.kafka_node import kafka_node
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.recorded import recorded

ANSWERS: Final = Path(__file__).with_name("console_tools.json")
SAME_IN_TIME_S = 10.0
CONFIG = {"group.initial.rebalance.delay.ms": "0"}


class Answer(NamedTuple):
    """A tool's exit status, and the shape of its output."""

    status: int
    shape: set[str]
    output: str = ""
    """Empty in an answer that was recorded."""


class Console:
    """A place at which command lines are typed."""

    def __init__(self, kafka_program: KafkaProgram, bootstrap_servers: str, directory: Path) -> None:
        self._run = kafka_program
        self._bootstrap_servers = bootstrap_servers
        self._deletions = directory / "deletions.json"
        partition = f'{{"topic": "{TOPIC}", "partition": 0, "offset": 1}}'
        self._deletions.write_text(f'{{"partitions": [{partition}], "version": 1}}')

    def answer(self, command: Command) -> Answer:
        """Run a tool to its end."""
        arguments = [argument.format(deletions=self._deletions) for argument in command.arguments]
        subcommands = (
            1 if command.main_class.endswith(".ClusterTool") else 0
        )  # this one takes options after it
        bootstrap = ["--bootstrap-server", self._bootstrap_servers]
        arguments = [*arguments[:subcommands], *bootstrap, *arguments[subcommands:]]
        ran = self._run(command.main_class, *arguments, check=False, reads=command.reads)
        return Answer(ran.returncode, shape_of(ran.stdout), ran.stdout + ran.stderr)


@pytest.fixture(scope="module")
def answers_of_kafka(kafka_program: KafkaProgram, tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """The answers of a node of Kafka's to each command, with the shapes that are compared."""

    def ask() -> list[tuple[int, list[str]]]:
        directory = tmp_path_factory.mktemp("kafka")
        with kafka_node(directory, CONFIG) as node:
            console = Console(kafka_program, node.bootstrap_servers, directory)
            answers = [console.answer(command) for command in COMMANDS]
        return [
            (answer.status, sorted(answer.shape) if command.is_compared_whole else [])
            for command, answer in zip(COMMANDS, answers, strict=True)
        ]

    return [Answer(status, set(shape)) for status, shape in recorded(ANSWERS, list(map(str, COMMANDS)), ask)]


@pytest.mark.timeout(400 + FETCH_TIMEOUT_S)
def test_console_tools_end_as_on_kafka_and_say_the_same(
    kafka_program: KafkaProgram, answers_of_kafka: list[Answer], tmp_path: Path
) -> None:
    """Scripts go by a tool's status and cut its lines up; operators read them."""
    # A cluster of its own, for tools list topics and groups, and leave connections open behind them.
    with LocalCluster(brokers=3, config=CONFIG) as cluster:
        different = differences(Console(kafka_program, cluster.bootstrap_servers, tmp_path), answers_of_kafka)
    assert not different, "\n\n".join(different)


def differences(console: Console, answers_of_kafka: Sequence[Answer]) -> list[str]:
    """Type all command lines; return those that end, or answer, otherwise than on Kafka."""
    different = []
    for command, kafkas in zip(COMMANDS, answers_of_kafka, strict=True):
        ours = console.answer(command)
        deadline_s = time.monotonic() + SAME_IN_TIME_S
        # A broker may not have heard yet of what an earlier command has changed.
        while command.asks and not agree(command, ours, kafkas) and time.monotonic() < deadline_s:
            ours = console.answer(command)
        if not agree(command, ours, kafkas):
            lines = "\n".join(sorted(kafkas.shape))
            both = f"ours {ours.status}:\n{ours.output}\nKafka's {kafkas.status}, in shape:\n{lines}"
            different.append(f"{command}\n{both}")
    return different


def agree(command: Command, ours: Answer, kafkas: Answer) -> bool:
    """Whether two answers are the same as far as they should be."""
    if command.fails_here is not None:
        return kafkas.status == 0 != ours.status
    return ours.status == kafkas.status and (not command.is_compared_whole or ours.shape == kafkas.shape)
