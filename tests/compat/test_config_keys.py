"""Our configuration keys against the documentation that Kafka generates from its own definitions."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from html import unescape
from typing import Final

import pytest

from benchmarks.java_libraries import kafka_class_path, maven_at_hand
from sparklog.config import BROKER_KEYS, TOPIC_KEYS, ConfigKey
from sparklog.config.kafka_keys import KAFKA_BROKER_KEYS, KAFKA_TOPIC_KEYS
from sparklog.config.topic import TOPIC_SYNONYMS

pytestmark = pytest.mark.skipif(
    not maven_at_hand() or not shutil.which("java"), reason="needs Maven and Java"
)

DIFFERENT_DEFAULTS: Final = {
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "controller.quorum.bootstrap.servers",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "replica.socket.receive.buffer.bytes",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}
"""Where a broker here lives differently from one of Kafka's; each is said in its documentation."""


def kafkas(main_class: str) -> Mapping[str, Mapping[str, str]]:
    """Return the documented properties of each key."""
    html = subprocess.run(
        ["java", "-cp", kafka_class_path(), main_class],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    keys = {}
    for name, table in re.findall(r'<h4><a id="([^"]+)">.*?<tbody>(.*?)</tbody>', html, re.DOTALL):
        keys[name] = {
            title: unescape(value) for title, value in re.findall(r"<th>(.*?):</th><td>(.*?)</td>", table)
        }
    return keys


def kafkas_default(key: ConfigKey, properties: Mapping[str, str]) -> str | None:
    """Return the default as a properties file would have it; the table explains some in brackets."""
    default = re.sub(r" \([^)]*\)$", "", properties.get("Default", ""))
    return None if default == "null" else default.strip('"')


def check(ours: Mapping[str, ConfigKey], theirs: Mapping[str, Mapping[str, str]]) -> None:
    for key in ours.values():
        if key.name.startswith("internal."):
            continue
        properties = theirs[key.name]
        assert key.type.name.lower() == properties["Type"], key.name
        if key.name not in DIFFERENT_DEFAULTS and not key.assigned:
            assert (key.format(key.default) or None) == (kafkas_default(key, properties) or None), key.name
        numbers = re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\].*", properties.get("Valid Values", ""))
        if numbers is not None and key.rule is not None:
            assert numbers[1] in key.rule.allowed, key.name
            assert numbers[2] is None or numbers[2] in key.rule.allowed, key.name


def test_broker_keys_have_kafkas_names_types_limits_and_defaults() -> None:
    """A file for Kafka's brokers must mean the same here."""
    theirs = kafkas("kafka.server.KafkaConfig")
    check(BROKER_KEYS, theirs)
    assert set(theirs) == KAFKA_BROKER_KEYS


def test_topic_keys_have_kafkas_names_types_limits_defaults_and_broker_keys() -> None:
    """And a topic's configuration as well, with the broker key each one follows."""
    theirs = kafkas("org.apache.kafka.storage.internals.log.LogConfig")
    check(TOPIC_KEYS, theirs)
    assert set(theirs) == KAFKA_TOPIC_KEYS
    for name, synonyms in TOPIC_SYNONYMS.items():
        if synonyms:
            assert synonyms[0].name == theirs[name]["Server Default Property"], name
