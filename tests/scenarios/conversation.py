"""Stories as text: what is done, a line of dashes, and what comes of it.

    produce x to 0
    ----
    broker 0 appends x at offset 0

A block ends with an empty line; lines that begin with # are the story-teller's. The outcomes are compared,
and written anew by `python -m tests.scenarios` when the machines have changed; the difference is to be
reviewed. Promises that are broken show up by themselves (LOST, DIVERGED), whatever was asked for.

    cluster BROKERS [replicas R,R,..] [partitions N] [min.insync.replicas N] [unclean] [old-rule]
    produce VALUE.. to BROKER [acks=1]      produce VALUE.. to BROKER of PARTITION
    fetch BROKER.. [unanswered]      wait MILLISECONDS      show
    start BROKER.. [empty]      restart BROKER unnoticed
    stop BROKER      kill BROKER..      power-cut BROKER.. losing N
    cut-off BROKER      deafen BROKER      heal BROKER
    create-topic      delete-topic      elect-uncleanly

Of the metadata log and its voters:

    quorum VOTERS      start DRIVER      stop DRIVER      continue DRIVER      begin DRIVER      show
    decide VALUE by DRIVER      wait MILLISECONDS
    fetch BROKER.. [unanswered]      deliver BROKER from DRIVER

`kill 0 1` ends both processes at once; with `power-cut 0 1 losing 2` the last two records were not yet on the
disk of broker 1. The controller hears of the first one first.
The old rule is the one before leader epochs: a follower cuts its log to its high watermark (KIP-101).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.scenarios.cluster import Cluster
from tests.scenarios.quorum import Quorum

STORIES = Path(__file__).parent / "stories"
DASHES = "----"


class Block(NamedTuple):
    """Some lines of a story, and what was done and came of it, if anything."""

    text: list[str]
    commands: list[str]
    outcome: list[str]


class Narrator:
    """Does what the commands of a story say; one cluster at a time."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._cluster: Cluster | None = None
        self._quorum: Quorum | None = None

    def do(self, commands: list[str]) -> list[str]:
        """Carry commands out; return what came of them."""
        self._lines.clear()
        for command in commands:
            self._do(command.split())
        if self._cluster is not None:
            self._cluster.check()
        return list(self._lines)

    def _do(self, words: list[str]) -> None:
        verb, *rest = words
        if verb == "cluster":
            self._cluster, self._quorum = self._new_cluster(rest), None
            return
        if verb == "quorum":
            self._cluster, self._quorum = None, Quorum(self._lines.append, int(rest[0]))
            return
        if self._quorum is not None:
            self._do_to_quorum(self._quorum, words)
            return
        cluster = self._cluster
        assert cluster is not None, "a story begins with a cluster"
        match verb, rest:
            case "produce", [*values, "to", broker]:
                for value in values:
                    cluster.produce(value, int(broker), all_acks=True)
            case "produce", [*values, "to", broker, "of", number]:
                for value in values:
                    cluster.produce(value, int(broker), int(number), all_acks=True)
            case "produce", [*values, "to", broker, "acks=1"]:
                for value in values:
                    cluster.produce(value, int(broker), all_acks=False)
            case "fetch", [broker, "unanswered"]:
                cluster.fetch(int(broker), answered=False)
            case "fetch", brokers:
                for broker in brokers:
                    cluster.fetch(int(broker))
            case "wait", [milliseconds]:
                cluster.wait(int(milliseconds))
            case "start", [broker, "empty"]:
                cluster.start(int(broker), empty=True)
            case "start", brokers:
                for broker in brokers:
                    cluster.start(int(broker))
            case "restart", [broker, "unnoticed"]:
                cluster.restart_unnoticed(int(broker))
            case "stop", [broker]:
                cluster.stop(int(broker))
            case "kill", brokers:
                cluster.kill(*map(int, brokers))
            case "power-cut", [*brokers, "losing", count]:
                cluster.cut_power(*map(int, brokers), losing=int(count))
            case "cut-off", [broker]:
                cluster.cut_off(int(broker))
            case "deafen", [broker]:
                cluster.deafen(int(broker))
            case "heal", [broker]:
                cluster.heal(int(broker))
            case "create-topic", []:
                cluster.create_topic()
            case "delete-topic", []:
                cluster.delete_topic()
            case "elect-uncleanly", []:
                cluster.elect_uncleanly()
            case "show", []:
                cluster.show()
            case _:
                raise ValueError(f"no such command: {' '.join(words)}")

    def _do_to_quorum(self, quorum: Quorum, words: list[str]) -> None:
        match words:
            case ["start", name]:
                quorum.start(name)
            case ["stop", name]:
                quorum.stop(name)
            case ["continue", name]:
                quorum.go_on(name)
            case ["begin", name]:
                quorum.begin(name)
            case ["decide", value, "by", name]:
                quorum.decide(value, name)
            case ["fetch", broker, "unanswered"]:
                quorum.fetch(int(broker), answered=False)
            case ["fetch", *brokers]:
                for broker in brokers:
                    quorum.fetch(int(broker))
            case ["deliver", broker, "from", name]:
                quorum.deliver(int(broker), name)
            case ["wait", milliseconds]:
                quorum.wait(int(milliseconds))
            case ["show"]:
                quorum.show()
            case _:
                raise ValueError(f"no such command: {' '.join(words)}")

    def _new_cluster(self, words: list[str]) -> Cluster:
        brokers = int(words.pop(0))
        replicas = tuple(range(brokers))
        topic: dict[str, str] = {}
        partitions = 1
        old_rule = False
        while words:
            match words.pop(0):
                case "replicas":
                    replicas = tuple(map(int, words.pop(0).split(",")))
                case "partitions":
                    partitions = int(words.pop(0))
                case "min.insync.replicas":
                    topic["min.insync.replicas"] = words.pop(0)
                case "unclean":
                    topic["unclean.leader.election.enable"] = "true"
                case "old-rule":
                    old_rule = True
                case word:
                    raise ValueError(f"a cluster has no {word}")
        return Cluster(
            self._lines.append,
            brokers=brokers,
            replicas=replicas,
            partitions=partitions,
            topic=topic,
            old_rule=old_rule,
        )


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a story, in order."""
    lines = iter(text.splitlines())
    said: list[str] = []
    for line in lines:
        said.append(line)
        if line != DASHES:
            continue
        commands = []
        for earlier in reversed(said[:-1]):
            if not earlier or earlier.startswith("#"):
                break
            commands.insert(0, earlier)
        outcome = []
        for follows in lines:
            if not follows:
                break
            outcome.append(follows)
        yield Block(said, commands, outcome)
        said = []
    yield Block(said, [], [])


def told(text: str) -> str:
    """Return a story with the outcomes that it has today."""
    narrator = Narrator()
    lines: list[str] = []
    for block in blocks(text):
        lines += block.text
        if block.commands:
            lines += [*narrator.do(block.commands), ""]
    return "\n".join(lines).rstrip("\n") + "\n"
