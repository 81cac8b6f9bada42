"""The broker keys of the tier: Kafka's names, types, limits and defaults, and the keys of sparklog's store.

The store's options have names of their own below `sparklog.remote.option.`. They may be secrets: nothing
describes them. Source: Kafka's RemoteLogManagerConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.node.config.definition import (
    BOOLEAN,
    INT,
    LONG,
    LONG_MAX,
    STRING,
    ConfigError,
    at_least,
    config_key,
)

SYSTEM_ENABLE: Final = "remote.log.storage.system.enable"
REMOTE_URI: Final = "sparklog.remote.uri"
OPTION_PREFIX: Final = "sparklog.remote.option."
RETENTION_AS_A_WHOLE: Final = -2
"""The value of a local retention that equals the retention of the whole log."""


def is_store_option(name: str) -> bool:
    return name.startswith(OPTION_PREFIX) and len(name) > len(OPTION_PREFIX)


@dataclass(frozen=True, kw_only=True)
class RemoteLogKeys:
    raw: Mapping[str, str]

    sparklog_remote_uri: str | None = config_key(
        STRING,
        None,
        "The object store that old records are copied to, as s3://bucket/prefix. Not a key of Kafka's.",
        name=REMOTE_URI,
    )
    remote_options: Mapping[str, str] = field(init=False, repr=False)
    """The values of `sparklog.remote.option.<name>` by <name>."""
    remote_log_storage_system_enable: bool = config_key(
        BOOLEAN,
        False,
        "Whether topics are tiered unless they say otherwise: true with sparklog.remote.uri, false without.",
        name=SYSTEM_ENABLE,
    )
    log_local_retention_ms: int = config_key(
        LONG,
        RETENTION_AS_A_WHOLE,
        "How long records of tiered topics stay on brokers' disks; -1 for ever, -2 as retention.",
        at_least(RETENTION_AS_A_WHOLE),
    )
    log_local_retention_bytes: int = config_key(
        LONG,
        RETENTION_AS_A_WHOLE,
        "How large a tiered partition may grow on a broker's disk; -1 for no limit, -2 as retention.",
        at_least(RETENTION_AS_A_WHOLE),
    )
    follower_fetch_last_tiered_offset_enable: bool = config_key(
        BOOLEAN,
        True,
        "Whether an empty follower of a tiered partition begins at the tier's end instead of the leader's"
        " first local record; unlike in Kafka it does by default.",
    )
    remote_log_manager_copy_max_bytes_per_second: int = config_key(
        LONG, LONG_MAX, "How many bytes a second a broker copies to the store.", at_least(1)
    )
    remote_log_manager_fetch_max_bytes_per_second: int = config_key(
        LONG, LONG_MAX, "How many bytes a second a broker reads from the store.", at_least(1)
    )
    remote_fetch_max_wait_ms: int = config_key(INT, 500, "How long a fetch waits for the store.", at_least(1))
    remote_list_offsets_request_timeout_ms: int = config_key(
        LONG, 30000, "How long a search of an offset by time waits for the store.", at_least(1)
    )
    sparklog_remote_max_lag_ms: int = config_key(
        LONG, 60000, "How long a record may be on brokers' disks alone. Not a key of Kafka's.", at_least(1)
    )
    sparklog_remote_metadata_lag_ms: int = config_key(
        LONG,
        1000,
        "How long a change of the cluster's metadata may be on disks alone. Not a key of Kafka's.",
        at_least(1),
    )
    sparklog_remote_cache_bytes: int = config_key(
        LONG,
        268435456,
        "How many bytes of records from the store a broker keeps in memory. Not a key of Kafka's.",
        at_least(0),
    )
    sparklog_remote_stop_timeout_ms: int = config_key(
        LONG,
        300000,
        "How long a stop of the cluster waits until all records are in the store. Not a key of Kafka's.",
        at_least(0),
    )

    def __post_init__(self) -> None:
        options = {
            name.removeprefix(OPTION_PREFIX): text for name, text in self.raw.items() if is_store_option(name)
        }
        object.__setattr__(self, "remote_options", options)
        if self.remote_log_storage_system_enable and self.remote_uri is None:
            raise ConfigError(
                SYSTEM_ENABLE,
                "true",
                f"there is no store to copy to: set {REMOTE_URI}, as s3://bucket/prefix",
            )
        if self.remote_uri is not None and not self.remote_log_storage_system_enable:
            raise ConfigError(SYSTEM_ENABLE, "false", f"{REMOTE_URI} is set: remove one of the two")
        if options and self.remote_uri is None:
            first = f"{OPTION_PREFIX}{min(options)}"
            raise ConfigError(first, None, f"an option of no store: set {REMOTE_URI}, or remove the option")

    @property
    def remote_uri(self) -> str | None:
        """The URI of the store; `None` without a tier."""
        return self.sparklog_remote_uri or None

    @property
    def remote_max_lag_ms(self) -> int:
        return self.sparklog_remote_max_lag_ms

    @property
    def remote_metadata_lag_ms(self) -> int:
        return self.sparklog_remote_metadata_lag_ms

    @property
    def remote_cache_bytes(self) -> int:
        return self.sparklog_remote_cache_bytes

    @property
    def remote_stop_timeout_ms(self) -> int:
        return self.sparklog_remote_stop_timeout_ms

    @property
    def remote_log_copy_max_bytes_per_second(self) -> int | None:
        """`None` for no limit."""
        return _limit(self.remote_log_manager_copy_max_bytes_per_second)

    @property
    def remote_log_fetch_max_bytes_per_second(self) -> int | None:
        """`None` for no limit."""
        return _limit(self.remote_log_manager_fetch_max_bytes_per_second)


def _limit(bytes_per_second: int) -> int | None:
    return None if bytes_per_second == LONG_MAX else bytes_per_second
