"""Words that Kafka Streams counts exactly once while a broker and one of those who count are killed.

Two processes of one application (`java/WordCount.java`) count the words of lines that come in parts, one
before each kill. Each count is told as it rises. So whoever reads committed records must see each word's
counts in order from one on, each once, up to as often as the word was there.
"""

import random
import struct
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.faults import FAULTS as SIGNALS
from benchmarks.java_libraries import fetch_streams, source_command
from tests.chaos.exactly_once import (
    SURPLUS_S,
    TELLING,
    ExactlyOnceError,
    Workers,
    broker_processes,
    create_topics,
    produce,
    read_committed,
    wait_for_records,
)
from tests.chaos.scene import Scene, Struck

SOURCE: Final = Path(__file__).parent / "java" / "WordCount.java"
LINES: Final = 6_000
"""Of each part."""
WORDS_A_LINE: Final = 4
VOCABULARY: Final = 200
COUNTERS: Final = 2
LATEST_S: Final = 1.0
"""How long after a part of the lines has begun to be counted a kill comes, at most."""
_COUNT: Final = struct.Struct(">q")


Kill = Callable[[Workers], None]
"""Kills something, and returns when a worker that has ended may be started again."""


def count_under_kills(scene: Scene) -> Struck:
    """Have words counted, kill meanwhile, and compare.

    Raises:
        ExactlyOnceError: a word was counted too often, not often enough, or its counts are in another order.
    """
    hit: set[int] = set()
    over_s = 0.0

    def kill_broker(_: Workers) -> None:
        nonlocal over_s
        processes = broker_processes(scene)
        broker = scene.chance.choice(sorted(processes))
        SIGNALS["kill"].strike(processes[broker])
        hit.add(broker)
        over_s = time.monotonic()
        broker_processes(scene)

    def kill_counter(counters: Workers) -> None:
        nonlocal over_s
        counters.kill(scene.chance.randrange(COUNTERS))
        over_s = time.monotonic()

    kills = [kill_broker, kill_counter]
    scene.chance.shuffle(kills)
    count_words(scene.application.bootstrap_servers, scene.chance, kills)
    return Struck("kills under Kafka Streams, which counts words", frozenset(hit), False, over_s)


def count_words(
    bootstrap_servers: str, chance: random.Random, kills: Sequence[Kill], *, lines: int = LINES
) -> None:
    """Have `lines` lines counted before each kill and after the last one, and compare.

    Raises:
        ExactlyOnceError: a word was counted too often, not often enough, or its counts are in another order.
    """
    name = f"counted-{chance.randrange(10**9)}"
    source, target = f"{name}-lines", f"{name}-words"
    create_topics(bootstrap_servers, source, target)
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as states:
        commands = [
            source_command(
                SOURCE,
                bootstrap_servers,
                source,
                target,
                name,
                f"{states}/{number}",
                class_path=[fetch_streams() / "*"],
            )
            for number in range(COUNTERS)
        ]
        with Workers(commands) as counters:
            for kill in kills:
                before = counted.total()
                _write(bootstrap_servers, chance, source, counted, lines)
                wait_for_records(bootstrap_servers, target, before + 1, counters)
                time.sleep(chance.uniform(0, LATEST_S))
                kill(counters)
                counters.start_missing()
            _write(bootstrap_servers, chance, source, counted, lines)
            wait_for_records(bootstrap_servers, target, counted.total(), counters)
        _compare(bootstrap_servers, target, counted)


def _write(
    bootstrap_servers: str, chance: random.Random, source: str, counted: Counter[str], lines: int
) -> None:
    """Write a part of the lines, and count their words."""
    part = [[f"word-{chance.randrange(VOCABULARY)}" for _ in range(WORDS_A_LINE)] for _ in range(lines)]
    for line in part:
        counted.update(line)
    produce(bootstrap_servers, source, (" ".join(line).encode() for line in part))


def _compare(bootstrap_servers: str, target: str, counted: Counter[str]) -> None:
    told: defaultdict[str, list[int]] = defaultdict(list)
    for messages in read_committed(bootstrap_servers, target, patience_s=SURPLUS_S):
        for message in messages:
            (count,) = _COUNT.unpack(message.value() or b"")
            told[(message.key() or b"").decode()].append(count)
    for word in counted.keys() | told.keys():
        wanted, found = [*range(1, counted[word] + 1)], told[word]
        if wanted != found:
            pairs = enumerate(zip(wanted, found, strict=False))
            at = next((index for index, (one, other) in pairs if one != other), min(len(wanted), len(found)))
            raise ExactlyOnceError(
                f"{word} was there {len(wanted)} times and counted {len(found)} times; its counts go on from "
                f"{at} with {found[at : at + TELLING]}"
            )
