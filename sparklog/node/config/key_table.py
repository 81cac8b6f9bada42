"""Tables of configuration keys: the files `keys/*.txt`, but for `topic_defaults.txt` (see `topic.py`).

    log.cleaner.threads: int = 1; at least 0
        How many logs are cleaned side by side, each by a process of its own.

A row begins with the key's name, type, default and limits; a key without a default has no value until it is
set. Limits are written as in error messages (`Rule.allowed`). The documentation, which DescribeConfigs gives,
is indented, and is that of all rows directly above it. Lines with `#` are comments.
"""

import pkgutil
import re
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
    read_value,
    some_of,
)

_ROW: Final = re.compile(r"(\S+): (\w+)(?: = ?([^;\n]*))?(?:; (.*))?\n")
_GROUP: Final = re.compile(rf"((?:{_ROW.pattern})+)((?:    .*\n)+)")


def read_data(file_name: str) -> str:
    """Return the text of a file beside the modules of keys."""
    data = pkgutil.get_data("sparklog.node.config.keys", file_name)
    assert data is not None, file_name
    return data.decode()


def read_keys(file_name: str) -> dict[str, ConfigKey]:
    """Return the keys of a table by their names."""
    text = re.sub(r"(?m)^(#.*)?\n", "", read_data(file_name))
    assert re.fullmatch(f"({_GROUP.pattern})*", text), f"{file_name} has a line of no row"
    return {
        row[1]: _key(row, " ".join(group[group.re.groups].split()))
        for group in _GROUP.finditer(text)
        for row in _ROW.finditer(group[1])
    }


def _key(row: re.Match[str], documentation: str) -> ConfigKey:
    name, type_name, default, rule = row.groups()
    config_type = ConfigType[type_name.upper()]
    return ConfigKey(
        name,
        config_type,
        None if default is None else read_value(config_type, default),
        documentation,
        None if rule is None else parse_rule(rule),
    )


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


_BROKER_ROWS: Final = read_keys("broker.txt")
_TOPIC_ROWS: Final = read_keys("topic.txt")


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
