"""Client-metrics resources (KIP-714): which clients are to push which of their metrics how often.

A resource is a subscription under a name; it is set by IncrementalAlterConfigs. Rules kept, those of Kafka's
ClientMetricsConfigs: a client is meant if every pattern of `match` fits, wholly, what is known of it;
`metrics` are prefixes of names, "*" being all of them, and none nothing.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sparklog.config.definition import ConfigError, ConfigKey, ConfigType, between
from sparklog.errors import ErrorCode, KafkaError

INTERVAL_MS: Final = "interval.ms"
METRICS: Final = "metrics"
MATCH: Final = "match"
DEFAULT_INTERVAL_MS: Final = 300_000
_PATTERNS_KEPT: Final = 256

CLIENT_METRICS_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        key.name: key
        for key in (
            ConfigKey(METRICS, ConfigType.LIST, (), "Prefixes of the metrics that clients push; * for all."),
            ConfigKey(
                INTERVAL_MS,
                ConfigType.INT,
                DEFAULT_INTERVAL_MS,
                "How often they push them.",
                between(100, 3_600_000),
            ),
            ConfigKey(
                MATCH,
                ConfigType.LIST,
                (),
                "Which clients are meant, as name=pattern; all if there is none.",
            ),
        )
    }
)

MATCHED: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What may be matched of a client."""


class ClientMetrics(NamedTuple):
    """One subscription."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]
    """Patterns by the names in `MATCHED`."""

    def is_for(self, client: Mapping[str, str]) -> bool:
        """Whether a client is meant of which this is known."""
        return all(_pattern(text).fullmatch(client.get(name, "")) for name, text in self.match.items())


def client_metrics(values: Mapping[str, str]) -> ClientMetrics:
    """Return what a resource says.

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
    """Refuse a resource that nobody could obey.

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
        ValueError: it is none.
    """
    # Matches in a time that is linear in the text, whatever the pattern; loaded when there is one.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise ValueError(f"{text!r} is no regular expression") from error
