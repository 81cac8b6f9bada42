"""The broker keys of the tier: Kafka's names, types, limits and defaults, and the keys of sparklog's store.

The store's options have names of their own below `sparklog.remote.option.`. They may be secrets: nothing
describes them. Source: Kafka's RemoteLogManagerConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.node.config.definition import LONG_MAX, ConfigError
from sparklog.node.config.key_table import broker_key
from sparklog.node.remote_log.uri import OPTION_PREFIX, URI_KEY

SYSTEM_ENABLE: Final = "remote.log.storage.system.enable"
RETENTION_AS_A_WHOLE: Final = -2
"""The value of a local retention that equals the retention of the whole log."""


def is_store_option(name: str) -> bool:
    return name.startswith(OPTION_PREFIX) and len(name) > len(OPTION_PREFIX)


@dataclass(frozen=True, kw_only=True)
class RemoteLogKeys:
    raw: Mapping[str, str]

    sparklog_remote_uri: str | None = broker_key(URI_KEY)
    remote_options: Mapping[str, str] = field(init=False, repr=False)
    """The values of `sparklog.remote.option.<name>` by <name>."""
    remote_log_storage_system_enable: bool = broker_key(SYSTEM_ENABLE)
    log_local_retention_ms: int = broker_key("log.local.retention.ms")
    log_local_retention_bytes: int = broker_key("log.local.retention.bytes")
    follower_fetch_last_tiered_offset_enable: bool = broker_key("follower.fetch.last.tiered.offset.enable")
    remote_log_manager_copy_max_bytes_per_second: int = broker_key(
        "remote.log.manager.copy.max.bytes.per.second"
    )
    remote_log_manager_fetch_max_bytes_per_second: int = broker_key(
        "remote.log.manager.fetch.max.bytes.per.second"
    )
    remote_fetch_max_wait_ms: int = broker_key("remote.fetch.max.wait.ms")
    remote_list_offsets_request_timeout_ms: int = broker_key("remote.list.offsets.request.timeout.ms")
    sparklog_remote_max_lag_ms: int = broker_key("sparklog.remote.max.lag.ms")
    sparklog_remote_metadata_lag_ms: int = broker_key("sparklog.remote.metadata.lag.ms")
    sparklog_remote_cache_bytes: int = broker_key("sparklog.remote.cache.bytes")
    sparklog_remote_stop_timeout_ms: int = broker_key("sparklog.remote.stop.timeout.ms")

    def __post_init__(self) -> None:
        options = {
            name.removeprefix(OPTION_PREFIX): text for name, text in self.raw.items() if is_store_option(name)
        }
        object.__setattr__(self, "remote_options", options)
        if self.remote_log_storage_system_enable and self.remote_uri is None:
            raise ConfigError(
                SYSTEM_ENABLE,
                "true",
                f"there is no store to copy to: set {URI_KEY}, as s3://bucket/prefix",
            )
        if self.remote_uri is not None and not self.remote_log_storage_system_enable:
            raise ConfigError(SYSTEM_ENABLE, "false", f"{URI_KEY} is set: remove one of the two")
        if options and self.remote_uri is None:
            first = f"{OPTION_PREFIX}{min(options)}"
            raise ConfigError(first, None, f"an option of no store: set {URI_KEY}, or remove the option")

    @property
    def remote_uri(self) -> str | None:
        """The URI of the store; `None` without a tier."""
        return self.sparklog_remote_uri or None

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
