"""Command lines of Kafka's console tools, and the shape of what they print.

The shape of an answer is what stays of its lines when names and numbers of a cluster are taken out: a cluster
of ours and a node of Kafka's have other addresses, ids, offsets and numbers of brokers.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

TOPIC: Final = "console-tools"
_TOOLS: Final = "org.apache.kafka.tools"
_GROUP: Final = "console-tools-group"
_WORDS: Final = "an error in other words"
_KEYS: Final = "not all keys are there"
_SIZE: Final = "the cluster's size is among the values of all brokers"
_ONE_NODE: Final = "a node of Kafka's alone has no followers"
_OF_TOPIC: Final = ("--topic", TOPIC)
_TOPICS: Final = ("--entity-type", "topics", "--entity-name", TOPIC)
_ALL_BROKERS: Final = ("--entity-type", "brokers", "--entity-default")
_BROKER: Final = ("--entity-type", "brokers", "--entity-name", "0")
_CLIENTS: Final = ("--entity-type", "clients", "--entity-name", "tools")
_GROUPS: Final = ("--entity-type", "groups", "--entity-name", "tools")
_METRICS: Final = ("--name", "tools")
_OF_GROUP: Final = ("--group", _GROUP)


class Command(NamedTuple):
    """A tool with its arguments; the address of the cluster is added."""

    main_class: str
    arguments: Sequence[str]
    reads: str = ""
    asks: bool = False
    """Whether it changes nothing, so that it may be run again until all brokers know of an earlier change."""
    shows: str = ""
    """A part of an earlier change: the tool is run again until a broker that it asks knows of it."""
    differs: str | None = None
    """Why the answer has another shape than Kafka's: it is only compared whether the tool succeeds."""
    fails_here: str | None = None
    """Why the tool fails on a cluster of ours only."""

    @property
    def is_compared_whole(self) -> bool:
        """Whether the answer has the shape of Kafka's."""
        return self.differs is None and self.fails_here is None

    def __str__(self) -> str:
        return " ".join([self.main_class.rpartition(".")[2], *self.arguments])


def _asking(tool: str, *arguments: str, **fields: Any) -> Command:
    return Command(f"{_TOOLS}.{tool}", arguments, asks=True, **fields)


def _changing(tool: str, *arguments: str, **fields: Any) -> Command:
    return Command(f"{_TOOLS}.{tool}", arguments, **fields)


def _config(*arguments: str, **fields: Any) -> Command:
    return Command("kafka.admin.ConfigCommand", arguments, asks="--describe" in arguments, **fields)


def _groups(*arguments: str, **fields: Any) -> Command:
    changes = {"--delete", "--delete-offsets", "--reset-offsets"}.intersection(arguments)
    return Command(f"{_TOOLS}.consumer.group.ConsumerGroupCommand", arguments, asks=not changes, **fields)


COMMANDS: Final[Sequence[Command]] = (
    _asking("BrokerApiVersionsCommand", differs="what a broker serves, and whether it is of these versions"),
    _asking("ClusterTool", "cluster-id"),
    _asking("ClusterTool", "list-endpoints"),
    _changing("ClusterTool", "unregister", "--id", "99"),
    _asking("MetadataQuorumCommand", "describe", "--status", differs="voters have directories here"),
    _asking("MetadataQuorumCommand", "describe", "--replication", differs=_ONE_NODE),
    _asking("MetadataQuorumCommand", "describe", "--replication", "--human-readable", differs=_ONE_NODE),
    _asking("FeatureCommand", "describe", differs="share groups and streams groups are not there"),
    _asking("FeatureCommand", "version-mapping", "--release-version", "4.3"),
    _asking("FeatureCommand", "feature-dependencies", "--feature", "group.version=1"),
    _changing("FeatureCommand", "upgrade", "--feature", "group.version=1"),
    _changing("FeatureCommand", "upgrade", "--feature", "no.such.feature=1", differs=_WORDS),
    _changing("FeatureCommand", "downgrade", "--feature", "transaction.version=0", "--dry-run"),
    _changing("FeatureCommand", "downgrade", "--metadata", "3.3-IV0", "--dry-run", differs=_WORDS),
    _changing(
        "FeatureCommand",
        "upgrade",
        "--release-version",
        "4.3",
        fails_here="share.version and streams.version are refused, by name; the others are there",
    ),
    # Topics
    _changing("TopicCommand", "--create", *_OF_TOPIC, "--partitions", "2", "--replication-factor", "1"),
    _changing("TopicCommand", "--create", *_OF_TOPIC, differs=_WORDS),
    _changing("TopicCommand", "--create", "--topic", "no+name", differs=_WORDS),
    _asking("TopicCommand", "--list", shows=TOPIC),
    _asking("TopicCommand", "--describe", *_OF_TOPIC, shows="PartitionCount: 2"),
    _changing("TopicCommand", "--alter", *_OF_TOPIC, "--partitions", "3"),
    _changing("TopicCommand", "--alter", *_OF_TOPIC, "--partitions", "2"),
    _asking("TopicCommand", "--describe", *_OF_TOPIC, shows="PartitionCount: 3"),
    _asking("TopicCommand", "--describe", "--topic", "missing"),
    _asking("TopicCommand", "--describe", "--under-replicated-partitions"),
    _asking("TopicCommand", "--describe", "--unavailable-partitions"),
    # Records
    _changing("ConsoleProducer", *_OF_TOPIC, "--reader-property", "parse.key=true", reads="a\t1\nb\t2\n"),
    _changing("ConsoleProducer", *_OF_TOPIC, "--compression-codec", "zstd", "--sync", reads="c\n"),
    _changing(
        "consumer.ConsoleConsumer",
        *(*_OF_TOPIC, *_OF_GROUP, "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000"),
        *("--formatter-property", "print.key=true"),
    ),
    _asking("GetOffsetShell", *_OF_TOPIC),
    _asking("GetOffsetShell", *_OF_TOPIC, "--time", "earliest"),
    _asking("GetOffsetShell", *_OF_TOPIC, "--time", "max-timestamp"),
    _asking("GetOffsetShell", "--topic", "missing"),
    _changing(
        "ProducerPerformance",
        *_OF_TOPIC,
        "--num-records",
        "100",
        "--record-size",
        "10",
        *("--throughput", "-1"),
    ),
    _changing("ConsumerPerformance", *_OF_TOPIC, "--num-records", "50", "--timeout", "30000"),
    _changing(
        "EndToEndLatency",
        *_OF_TOPIC,
        "--num-records",
        "5",
        *("--producer-acks", "all", "--record-size", "10"),
    ),
    _changing("VerifiableProducer", *_OF_TOPIC, "--max-messages", "5"),
    _changing(
        "VerifiableConsumer",
        *(*_OF_TOPIC, "--group-id", "verifiable", "--max-messages", "5", "--reset-policy", "earliest"),
        differs="how many batches it hears of",
    ),
    _changing("DeleteRecordsCommand", "--offset-json-file", "{deletions}"),
    # Groups
    _asking("GroupsCommand", "--list"),
    _asking("GroupsCommand", "--list", "--group-type", "classic"),
    _groups("--list"),
    _groups("--list", "--state"),
    _groups("--list", "--type"),
    _groups("--describe", *_OF_GROUP),
    _groups("--describe", *_OF_GROUP, "--state"),
    _groups("--describe", *_OF_GROUP, "--members", "--verbose"),
    _groups("--describe", "--all-groups"),
    _groups("--describe", "--group", "missing"),
    _groups("--reset-offsets", *_OF_GROUP, *_OF_TOPIC, "--to-earliest", "--dry-run"),
    _groups("--reset-offsets", *_OF_GROUP, *_OF_TOPIC, "--shift-by", "1", "--execute"),
    _groups("--delete-offsets", *_OF_GROUP, *_OF_TOPIC),
    _groups("--delete", *_OF_GROUP),
    _groups("--delete", "--group", "missing"),
    _asking("consumer.group.ShareGroupCommand", "--list"),
    _asking("streams.StreamsGroupCommand", "--list"),
    # Configurations
    _config("--describe", *_TOPICS),
    _config("--alter", *_TOPICS, "--add-config", "segment.bytes=2000000"),
    _config("--describe", *_TOPICS, shows="segment.bytes=2000000"),
    _config("--describe", *_TOPICS, "--all", differs=_KEYS),
    _config("--alter", *_TOPICS, "--add-config", "segment.bytes=soon"),
    _config("--alter", *_TOPICS, "--delete-config", "segment.bytes"),
    _config("--describe", *_ALL_BROKERS, differs=_SIZE),
    _config("--alter", *_ALL_BROKERS, "--add-config", "background.threads=9"),
    _config("--describe", *_ALL_BROKERS, shows="background.threads=9", differs=_SIZE),
    _config("--alter", *_ALL_BROKERS, "--delete-config", "background.threads"),
    _config("--alter", *_BROKER, "--add-config", "sasl.kerberos.min.time.before.relogin=58000"),
    _config("--describe", *_BROKER, shows="58000"),
    _config("--alter", *_BROKER, "--delete-config", "sasl.kerberos.min.time.before.relogin"),
    _config("--describe", *_BROKER, "--all", differs=_KEYS),
    _config("--alter", *_BROKER, "--add-config", "log.dirs=/x", differs=_WORDS),
    _config("--alter", *_CLIENTS, "--add-config", "producer_byte_rate=1"),
    _config("--describe", *_CLIENTS, shows="producer_byte_rate=1"),
    _config("--alter", *_CLIENTS, "--delete-config", "producer_byte_rate"),
    _config("--describe", "--entity-type", "users"),
    _config("--describe", "--entity-type", "ips"),
    _config("--alter", *_GROUPS, "--add-config", "consumer.session.timeout.ms=50000"),
    _config("--describe", *_GROUPS, shows="50000"),
    _config("--alter", *_GROUPS, "--delete-config", "consumer.session.timeout.ms"),
    _changing(
        "ClientMetricsCommand", "--alter", *_METRICS, "--metrics", "org.apache.", "--interval", "60000"
    ),
    _asking("ClientMetricsCommand", "--list", shows="tools"),
    _asking("ClientMetricsCommand", "--describe", *_METRICS, shows="60000"),
    _changing("ClientMetricsCommand", "--delete", *_METRICS),
    # Partitions and directories
    _asking("LogDirsCommand", "--describe", "--topic-list", TOPIC),
    _changing("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions"),
    _changing("LeaderElectionCommand", "--election-type", "preferred", *_OF_TOPIC, "--partition", "0"),
    _changing(
        "LeaderElectionCommand", "--election-type", "preferred", "--topic", "missing", "--partition", "0"
    ),
    _asking("reassign.ReassignPartitionsCommand", "--list"),
    # Transactions, users and permissions
    _asking("TransactionsCommand", "list"),
    _asking("TransactionsCommand", "describe", "--transactional-id", "missing"),
    _asking("TransactionsCommand", "describe-producers", *_OF_TOPIC, "--partition", "0"),
    _asking("TransactionsCommand", "find-hanging", "--broker-id", "0"),
    _asking("AclCommand", "--list"),
    _changing("AclCommand", "--add", "--allow-principal", "User:a", "--operation", "Read", *_OF_TOPIC),
    _changing("TopicCommand", "--delete", *_OF_TOPIC),
    _changing("TopicCommand", "--delete", "--topic", "missing"),
)
"""In this order, on a cluster without topics of this name. Left out are the tools of what this system has not
(delegation tokens, members of share groups and of streams groups), those that look at files (DumpLogSegments
has a test of its own, StorageTool formats none of these directories), and ReplicaVerificationTool, which does
not end."""

_IDS: Final = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")
_ADDRESSES: Final = re.compile(r"(?:localhost|127\.0\.0\.1)(?:/[\d.]+)?(?::\d+)?")
_PATHS: Final = re.compile(r"(?<![\w/])/[\w./-]+")
_NUMBERS: Final = re.compile(r"-?\d+(?:\.\d+)*(?:[eE]-?\d+)?(?:\s*,\s*-?\d+)*")
_NAMES: Final = re.compile(r"\b(?:Infinity|NaN|null|rack-\d+)\b|(?<=Cluster ID: )\S+")


def shape_of(output: str) -> set[str]:
    """Return the shapes of the lines of an answer.

    >>> sorted(shape_of("Topic: t\\tReplicas: 1,2\\nTopic: t\\tReplicas: 0\\n"))
    ['Topic: t Replicas: N']
    >>> shape_of('{"partition": 3, "replicas": [1, 2]}')
    {'{partition: _, replicas: [_]}'}
    """
    return {shape for line in output.splitlines() if (shape := _shape_of_line(line.strip()))}


def _shape_of_line(line: str) -> str:
    for start in ("[{", "{"):
        before, found, _ = line.partition(start)
        if found:
            try:
                return f"{_without_values(before)}{_shape_of_json(json.loads(line[len(before) :]))}"
            except json.JSONDecodeError:
                continue
    return _without_values(line)


def _without_values(text: str) -> str:
    for found, shown in ((_ADDRESSES, "A"), (_NAMES, "N"), (_IDS, "ID"), (_PATHS, "P"), (_NUMBERS, "N")):
        text = found.sub(shown, text)
    return re.sub(r"[\s-]*-{2,}|\s+", " ", text).strip()


def _shape_of_json(value: Any) -> str:
    match value:
        case dict():
            return f"{{{', '.join(f'{key}: {_shape_of_json(value[key])}' for key in sorted(value))}}}"
        case list():
            return f"[{' | '.join(sorted({_shape_of_json(item) for item in value}))}]"
        case _:
            return "_"
