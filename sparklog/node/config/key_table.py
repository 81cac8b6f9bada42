"""Tables of configuration keys: the files `keys/*.toml`; `topic_defaults.toml` is read by `topic.py`.

    ["log.cleaner.threads"]
    type = "int"
    default = 1
    allowed = "at least 0"
    documentation = "How many logs are cleaned side by side, each by a process of its own."

A key without a default has no value until it is set. Limits are written as in error messages
(`Rule.allowed`). The documentation is what DescribeConfigs gives.
"""

import pkgutil
import re
import tomllib
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Final

from sparklog.node.config.definition import (
    ConfigKey,
    ConfigType,
    Rule,
    at_least,
    between,
    either,
    one_of,
    some_of,
)


def read_data(file_name: str) -> str:
    """Return the text of a file beside the modules of keys."""
    data = pkgutil.get_data("sparklog.node.config.keys", file_name)
    assert data is not None, file_name
    return data.decode()


def read_keys(file_name: str) -> dict[str, ConfigKey]:
    return {name: _key(name, **row) for name, row in tomllib.loads(read_data(file_name)).items()}


def _key(
    name: str, type: str, documentation: str, default: Any = None, allowed: str | None = None
) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType[type.upper()],
        tuple(default) if isinstance(default, list) else default,
        documentation_of(documentation),
        None if allowed is None else parse_rule(allowed),
    )


def documentation_of(text: str) -> str:
    """Return the documentation of a row without its breaks of lines."""
    return " ".join(text.split())


def parse_rule(text: str) -> Rule:
    """Return the rule with this text.

    >>> parse_rule("-1, or from 1 to 9").accepts(9)
    True

    Raises:
        ValueError: no rule has this text.
    """
    match re.split(",? ", text):
        case ["at", "least", minimum]:
            return at_least(int(minimum))
        case ["from", minimum, "to", maximum]:
            return between(int(minimum), int(maximum))
        case ["one", "of", *choices]:
            return one_of(*choices)
        case ["a", "list", "of", *choices, "none", "of", "them", "twice"]:
            return some_of(*choices)
        case [value, "or", *_]:
            return either(int(value), parse_rule(text.partition(" or ")[2]))
    raise ValueError(text)


_BROKER_ROWS: Final = read_keys("broker.toml")
_TOPIC_ROWS: Final = read_keys("topic.toml")


def broker_key(name: str, rule: Rule | None = None, *, assigned: bool = False) -> Any:
    """Return a dataclass field that is a key of brokers; `rule` is one that the table can't have.

    The cluster sets an `assigned` key and refuses it from a user.
    """
    row = _BROKER_ROWS[name]
    return _field(replace(row, rule=rule or row.rule, assigned=assigned))


def topic_key(name: str, rule: Rule | None = None) -> Any:
    """Return a dataclass field that is a key of topics, and of no broker."""
    row = _TOPIC_ROWS[name]
    return _field(replace(row, rule=rule or row.rule))


def _field(key: ConfigKey) -> Any:
    return field(default=key.default, metadata={"key": key})


def keys_by_attribute(configuration: type) -> Mapping[str, ConfigKey]:
    """Return the keys of a dataclass, by the names of their fields."""
    return {item.name: item.metadata["key"] for item in fields(configuration) if "key" in item.metadata}
