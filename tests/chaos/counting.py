"""Words that Kafka Streams counts exactly once while a broker and one of those who count are killed.

Two processes of one application (`java/WordCount.java`) count the words of lines that come in parts, one
before each kill. Each count is told as it rises. So whoever reads committed records must see each word's
counts in order from one on, each once, up to as often as the word was there.
"""

import struct
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
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


def count_under_kills(scene: Scene) -> Struck:
    """Have words counted, kill meanwhile, and compare.

    Raises:
        ExactlyOnceError: a word was counted too often, not often enough, or its counts are in another order.
    """
    servers = scene.application.bootstrap_servers
    name = f"counted-{scene.chance.randrange(10**9)}"
    source, target = f"{name}-lines", f"{name}-words"
    create_topics(servers, source, target)
    kills: list[Kill] = [_kill_broker, _kill_counter]
    scene.chance.shuffle(kills)
    counted: Counter[str] = Counter()
    hit: set[int] = set()
    with tempfile.TemporaryDirectory() as states:
        commands = [
            source_command(
                SOURCE,
                servers,
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
                _write(scene, source, counted)
                wait_for_records(servers, target, before + 1, counters)
                time.sleep(scene.chance.uniform(0, LATEST_S))
                hit |= kill(scene, counters)
                over_s = time.monotonic()
                broker_processes(scene)
                counters.start_missing()
            _write(scene, source, counted)
            wait_for_records(servers, target, counted.total(), counters)
        _compare(servers, target, counted)
    return Struck("kills under Kafka Streams, which counts words", frozenset(hit), False, over_s)


Kill = Callable[[Scene, Workers], set[int]]


def _kill_broker(scene: Scene, counters: Workers) -> set[int]:
    processes = broker_processes(scene)
    broker = scene.chance.choice(sorted(processes))
    SIGNALS["kill"].strike(processes[broker])
    return {broker}


def _kill_counter(scene: Scene, counters: Workers) -> set[int]:
    counters.kill(scene.chance.randrange(COUNTERS))
    return set()


def _write(scene: Scene, source: str, counted: Counter[str]) -> None:
    """Write a part of the lines, and count their words."""
    lines = [
        [f"word-{scene.chance.randrange(VOCABULARY)}" for _ in range(WORDS_A_LINE)] for _ in range(LINES)
    ]
    for line in lines:
        counted.update(line)
    produce(scene.application.bootstrap_servers, source, (" ".join(line).encode() for line in lines))


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
