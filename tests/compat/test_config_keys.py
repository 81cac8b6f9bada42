"""Our configuration keys against the documentation that Kafka generates from its own definitions."""

import re
from collections.abc import Mapping
from html import unescape
from typing import Final

from sparklog.node.config import BROKER_KEYS, TOPIC_KEYS, ConfigKey
from sparklog.node.config.dynamic import CHANGEABLE_KEYS
from sparklog.node.config.keys.ignored_broker_keys import IGNORED_DYNAMIC_KEYS, OF_ONE_BROKER
from sparklog.node.config.keys.ignored_group_keys import IGNORED_GROUP_KEYS
from sparklog.node.config.keys.kafka_keys import KAFKA_BROKER_KEYS, KAFKA_TOPIC_KEYS
from sparklog.node.config.topic import TOPIC_SYNONYMS
from tests.compat.kafka_programs import KafkaProgram

DIFFERENT_DEFAULTS: Final = {
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "controller.quorum.bootstrap.servers",
    "follower.fetch.last.tiered.offset.enable",
    "listener.security.protocol.map",
    "listeners",
    "log.cleaner.io.buffer.size",
    "log.dir",
    "replica.socket.receive.buffer.bytes",
    "security.inter.broker.protocol",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}
"""Where a broker here lives differently from one of Kafka's; each is said in its documentation."""


def documented(html: str) -> Mapping[str, Mapping[str, str]]:
    """Return the documented properties of each key."""
    keys = {}
    for name, table in re.findall(r'<h4><a id="([^"]+)">.*?<tbody>(.*?)</tbody>', html, re.DOTALL):
        keys[name] = {
            title: unescape(value) for title, value in re.findall(r"<th>(.*?):</th><td>(.*?)</td>", table)
        }
    return keys


NOT_DOCUMENTED_BY_KAFKA = {
    "allow.everyone.if.no.acl.found",
    "group.consumer.assignor.offload.enable",
    "group.consumer.regex.refresh.interval.ms",
    "group.share.assignor.offload.enable",
    "group.share.initialize.retry.interval.ms",
    "group.share.persister.class.name",
    "group.streams.assignor.offload.enable",
    "producer.id.expiration.check.interval.ms",
    "super.users",
    "unclean.leader.election.interval.ms",
}
"""Named by Kafka, but left out of what it lists (GroupCoordinatorConfig.java, ReplicationConfigs.java,
ProducerStateManagerConfig.java, ShareGroupConfig.java, StandardAuthorizer.java)."""
STRICTER: Final = {"max.connection.creation.rate"}
"""Kafka takes 0, and then lets nobody in."""
OURS = {
    "message.max.decompressed.bytes",
    "sparklog.remote.cache.bytes",
    "sparklog.remote.max.lag.ms",
    "sparklog.remote.metadata.lag.ms",
    "sparklog.remote.stop.timeout.ms",
    "sparklog.remote.uri",
    "sparklog.bootstrap.scram.file",
    "sparklog.balance.enable",
    "sparklog.brokers.per.rack",
    "sparklog.max.brokers",
    "sparklog.rack.hosts",
    "sparklog.rack.names",
    "sparklog.racks",
    "sparklog.read.only",
    "sparklog.replace.after.ms",
    "sparklog.start.timeout.ms",
    "sparklog.table.commit.interval.ms",
    "sparklog.table.enable",
    "sparklog.table.name",
    "sparklog.table.partition.by",
    "sparklog.table.retention",
    "sparklog.table.snapshot.retention.ms",
    "sparklog.table.value.schema",
    "sparklog.trusted.network",
    "sparklog.two.phase.commit.transactional.id.prefixes",
}
"""What Kafka has not."""


READ_ONLY_HERE: Final = {"listener.security.protocol.map", "listeners"}
"""Keys beside those of listeners' security that Kafka's brokers change while they run, and ours refuse to
(docs/configuration.md)."""


FOLLOWING_HERE: Final = {"remote.storage.enable"}
"""Topic keys without a broker key in Kafka: topics of a cluster with a store are tiered by default."""


def kafkas_default(key: ConfigKey, properties: Mapping[str, str]) -> str | None:
    """Return the default as a properties file would have it; the table explains some in brackets."""
    default = re.sub(r" \([^)]*\)$", "", properties.get("Default", ""))
    return None if default == "null" else default.strip('"')


def check(ours: Mapping[str, ConfigKey], theirs: Mapping[str, Mapping[str, str]]) -> None:
    for key in ours.values():
        if key.name.startswith("internal.") or key.name in NOT_DOCUMENTED_BY_KAFKA | OURS:
            continue
        properties = theirs[key.name]
        assert key.type.name.lower() == properties["Type"], key.name
        if key.name not in DIFFERENT_DEFAULTS and not key.assigned:
            assert (key.format(key.default) or None) == (kafkas_default(key, properties) or None), key.name
        numbers = re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\].*", properties.get("Valid Values", ""))
        if numbers is not None and key.rule is not None and key.name not in STRICTER:
            assert numbers[1] in key.rule.allowed, key.name
            assert numbers[2] is None or numbers[2] in key.rule.allowed, key.name


def test_broker_keys_have_kafkas_names_types_limits_and_defaults(kafka_program: KafkaProgram) -> None:
    """A file for Kafka's brokers must mean the same here."""
    theirs = documented(kafka_program("kafka.server.KafkaConfig").stdout)
    check(BROKER_KEYS, theirs)
    check(IGNORED_GROUP_KEYS, theirs)
    assert {name for name in theirs if name.startswith("group.")} <= {*BROKER_KEYS, *IGNORED_GROUP_KEYS}
    assert set(theirs) == KAFKA_BROKER_KEYS
    check(IGNORED_DYNAMIC_KEYS, theirs)
    changeable = {name for name, properties in theirs.items() if properties["Update Mode"] != "read-only"}
    of_listeners = {name for name in changeable & set(BROKER_KEYS) if name.startswith(("sasl.", "ssl."))}
    assert changeable - set(CHANGEABLE_KEYS) == READ_ONLY_HERE | of_listeners
    of_one_broker = {name for name in changeable if theirs[name]["Update Mode"] == "per-broker"}
    assert of_one_broker & set(CHANGEABLE_KEYS) == OF_ONE_BROKER


def test_topic_keys_have_kafkas_names_types_limits_defaults_and_broker_keys(
    kafka_program: KafkaProgram,
) -> None:
    """And a topic's configuration as well, with the broker key each one follows."""
    theirs = documented(kafka_program("org.apache.kafka.storage.internals.log.LogConfig").stdout)
    check(TOPIC_KEYS, theirs)
    assert set(theirs) == KAFKA_TOPIC_KEYS
    for name, synonyms in TOPIC_SYNONYMS.items():
        if synonyms and name not in FOLLOWING_HERE:
            assert synonyms[0].name == theirs[name]["Server Default Property"], name
