"""Client-metrics resources (KIP-714): subscriptions that say which clients push which metrics how often.

A resource is a subscription under a name, set by IncrementalAlterConfigs. Rules, as in Kafka's
ClientMetricsConfigs: a client is selected if every pattern of `match` matches the whole of its attribute;
`metrics` are prefixes of names, "*" selects all, an empty list none.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sparklog.node.config.definition import ConfigError, ConfigKey
from sparklog.node.config.key_table import read_keys
from sparklog.protocol.errors import ErrorCode, KafkaError

INTERVAL_MS: Final = "interval.ms"
METRICS: Final = "metrics"
MATCH: Final = "match"
DEFAULT_INTERVAL_MS: Final = 300_000
_PATTERNS_KEPT: Final = 256

CLIENT_METRICS_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(read_keys("client_metrics.toml"))

MATCHED: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The attributes of a client that patterns may match."""


class ClientMetrics(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]
    """Patterns by the names in `MATCHED`."""

    def is_for(self, client: Mapping[str, str]) -> bool:
        return all(_pattern(text).fullmatch(client.get(name, "")) for name, text in self.match.items())


def client_metrics(values: Mapping[str, str]) -> ClientMetrics:
    """Return the subscription of a resource.

    Raises:
        KafkaError: INVALID_REQUEST, INVALID_CONFIG.
    """
    given: dict[str, Any] = {}
    for name, text in values.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise KafkaError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {name}")
        try:
            given[name] = key.parse(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.invalid_request, error.message) from error
    metrics = tuple(filter(None, given.get(METRICS, ())))
    match = _match(tuple(filter(None, given.get(MATCH, ()))))
    return ClientMetrics(metrics, given.get(INTERVAL_MS, DEFAULT_INTERVAL_MS), match)


def checked_client_metrics(name: str, values: Mapping[str, str]) -> None:
    """Check a resource before it is stored.

    Raises:
        KafkaError: INVALID_REQUEST, INVALID_CONFIG.
    """
    if not name:
        raise KafkaError(ErrorCode.invalid_request, "Subscription name can't be empty")
    client_metrics(values)


def _match(items: tuple[str, ...]) -> Mapping[str, str]:
    patterns = {}
    for item in items:
        name, separator, text = (part.strip() for part in item.partition("="))
        if not separator or name not in MATCHED:
            raise KafkaError(
                ErrorCode.invalid_config,
                f"Illegal client matching pattern: {item}; expected name=pattern of {', '.join(MATCHED)}",
            )
        try:
            _pattern(text)
        except ValueError as error:
            raise KafkaError(
                ErrorCode.invalid_config, f"Illegal client matching pattern: {item}: {error}"
            ) from error
        patterns[name] = text
    return MappingProxyType(patterns)


@lru_cache(_PATTERNS_KEPT)
def _pattern(text: str) -> Any:
    """Return the compiled pattern.

    Raises:
        ValueError: it is not a regular expression.
    """
    # RE2 matches in linear time for every pattern; imported when the first pattern is compiled.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise ValueError(f"{text!r} is not a regular expression") from error
