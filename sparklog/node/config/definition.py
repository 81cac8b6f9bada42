"""A configuration key: name, type, default and limits; and the parsing of its values.

Values are written as in Kafka: numbers in digits, `true` and `false` in any case, lists separated by commas,
blanks around a value ignored. A value that does not fit raises `ConfigError` with the key, the value and the
allowed range.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, Final, TypeAlias

from sparklog.node.config.password import HIDDEN, Password
from sparklog.protocol.errors import ErrorCode, KafkaError

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | Password | None

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
NEAR_MISS: Final = 0.8
"""The similarity (difflib's ratio) above which an unknown name counts as a misspelt key."""


class ConfigType(IntEnum):
    """The types of values, under their numbers in DescribeConfigs responses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = ConfigType

_INTEGER_BITS: Final[Mapping[ConfigType, int]] = {
    ConfigType.SHORT: 16,
    ConfigType.INT: 32,
    ConfigType.LONG: 64,
}


class ConfigError(KafkaError):
    """A configuration key that does not exist here, or a value that its key does not allow."""

    def __init__(self, key: str, value: str | None, reason: str) -> None:
        shown = key if value is None else f"{key}={value}"
        super().__init__(ErrorCode.invalid_config, f"{shown}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason

    def of_key(self, key: str) -> "ConfigError":
        """Return the same error for another key with the same value."""
        return ConfigError(key, self.value, self.reason)


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit on values beyond their type, in words and as a test."""

    allowed: str
    accepts: Callable[[Any], bool]


def at_least(minimum: float) -> Rule:
    return Rule(f"at least {minimum}", lambda value: value >= minimum)


def between(minimum: float, maximum: float) -> Rule:
    """Numbers from `minimum` to `maximum`, both inclusive."""
    return Rule(f"from {minimum} to {maximum}", lambda value: minimum <= value <= maximum)


def one_of(*choices: str) -> Rule:
    return Rule(f"one of {', '.join(choices)}", lambda value: value in choices)


def some_of(*choices: str) -> Rule:
    """A list of some of the words, without duplicates."""
    return Rule(
        f"a list of {', '.join(choices)}, none of them twice",
        lambda values: len(set(values)) == len(values) and set(values) <= set(choices),
    )


def either(value: int, rule: Rule) -> Rule:
    """The values of `rule`, and one more."""
    return Rule(f"{value}, or {rule.allowed}", lambda given: given == value or rule.accepts(given))


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key that this system honours.

    `unlimited` is the number for "no limit"; it is parsed as None. The cluster sets an `assigned` key and
    refuses it from a user. `sensitive` values are never shown.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    documentation: str
    rule: Rule | None = None
    unlimited: int | None = None
    assigned: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """Return the value of `text`.

        Raises:
            ConfigError: the text is not of the key's type or not within its rule.
        """
        shown = HIDDEN if self.sensitive else text
        try:
            value = read_value(self.type, text.strip())
        except ValueError as error:
            raise ConfigError(self.name, shown, f"expected {self._expected()}") from error
        if self.rule is not None and not self.rule.accepts(value):
            raise ConfigError(self.name, shown, f"expected {self._expected()}")
        return None if self.unlimited is not None and value == self.unlimited else value

    def format(self, value: ConfigValue) -> str | None:
        """Return the value as Kafka writes it, None if there is none to show."""
        if self.sensitive:
            return None
        if value is None:
            return None if self.unlimited is None else str(self.unlimited)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            # Java has no sign and no zero before an exponent.
            return re.sub(r"e\+?(-?)0*", r"E\1", str(value))
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def _expected(self) -> str:
        article = "an" if self.type is ConfigType.INT else "a"
        rule = "" if self.rule is None else f", {self.rule.allowed}"
        return f"{article} {self.type.name.lower()}{rule}"


def find_key(keys: Mapping[str, ConfigKey], name: str, known_to_kafka: Iterable[str], kind: str) -> ConfigKey:
    """Return the key of that name.

    Raises:
        ConfigError: there is none. The message says whether Kafka has one, or which key has a similar name.
    """
    key = keys.get(name)
    if key is not None:
        return key
    if name in known_to_kafka:
        raise ConfigError(name, None, f"Kafka has this {kind} configuration, this system does not; remove it")
    nearest = get_close_matches(name.lower(), keys, n=1, cutoff=NEAR_MISS)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise ConfigError(name, None, f"no such {kind} configuration{hint}")


def read_value(config_type: ConfigType, text: str) -> ConfigValue:
    """Return the value of a text without blanks around it; raise a ValueError if it is not of the type."""
    match config_type:
        case ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError(text)
            return text.lower() == "true"
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            if "_" in text:
                raise ValueError(text)
            number = int(text)
            limit = 1 << (_INTEGER_BITS[config_type] - 1)
            if not -limit <= number < limit:
                raise ValueError(text)
            return number
        case ConfigType.DOUBLE:
            return float(text)
        case ConfigType.LIST:
            return tuple(item.strip() for item in text.split(",")) if text else ()
        case ConfigType.PASSWORD:
            return Password(text)
        case ConfigType.STRING | ConfigType.CLASS:
            return text
