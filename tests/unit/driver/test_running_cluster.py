"""What a second start may differ in from the first: nothing but how it is written."""

from pathlib import Path

import pytest

from sparklog.driver.running_cluster import Shape
from sparklog.node.config import BrokerConfig


def shape(racks: int = 3, brokers_per_rack: int = 1, **config: str) -> Shape:
    """Return what is asked for; keys have `_` for `.`."""
    mapping = {name.replace("_", "."): value for name, value in config.items()}
    return Shape(racks, brokers_per_rack, BrokerConfig.from_mapping(mapping, racks=racks))


def test_shapes_written_differently_are_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A default that is spelt out, a path that is relative and a key's other name mean the same."""
    monkeypatch.chdir(tmp_path)
    spelt_out = shape(default_replication_factor="3", num_partitions=" 1", auto_create_topics_enable="TRUE")
    assert spelt_out.differences(shape()) == []
    assert shape(log_dir="logs").differences(shape(log_dirs=f"{tmp_path}/logs")) == []


def test_shapes_that_differ_say_in_what_and_how() -> None:
    """Whoever is refused is told what to write instead."""
    asked = shape(racks=4, log_dirs="/a,/b", auto_create_topics_enable="false")
    running = shape(brokers_per_rack=2, log_retention_ms="-1")
    assert asked.differences(running) == [
        "racks is 3, not 4",
        "brokers_per_rack is 2, not 1",
        "log.dirs is unset, not /a,/b",
        "log.retention.ms is -1, not unset",
        "auto.create.topics.enable is true, not false",
    ]


def test_shapes_that_differ_at_one_listener_say_so_without_showing_secrets() -> None:
    """Whoever is handed a running cluster takes its listeners for those that he has asked for."""
    listeners = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    }
    users = "listener.name.outside.plain.sasl.jaas.config"
    running = shape(
        **listeners, **{users: 'P required user_ann="one";', "listener.name.inside.max.connections": "7"}
    )
    rewritten = shape(
        **listeners, **{users: 'P required user_ann="one";', "listener.name.INSIDE.max.connections": " 7"}
    )
    assert rewritten.differences(running) == []
    asked = shape(
        **listeners, **{users: 'P required user_ann="two";', "listener.name.outside.max.connections": "8"}
    )
    assert asked.differences(running) == [
        f"{users} is [hidden], not [hidden]",
        "listener.name.outside.max.connections is unset, not 8",
        "listener.name.inside.max.connections is 7, not unset",
    ]


def test_shapes_with_other_options_of_the_store_differ_without_showing_them() -> None:
    """The credentials of a bucket are secrets, and another bucket's would copy the records elsewhere."""
    uri, option = {"sparklog.remote.uri": "s3://bucket"}, "sparklog.remote.option.token"
    running, asked = shape(**uri, **{option: "one"}), shape(**uri, **{option: "two"})
    assert asked.differences(running) == [f"{option} is [hidden], not [hidden]"]
