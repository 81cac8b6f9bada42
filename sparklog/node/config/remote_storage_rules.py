"""The values of a tiered topic's keys that go together: Kafka's rules, but compacted topics may be tiered.

Source: Kafka's LogConfig.validateTopicLogConfigValues and its parts.
"""

from typing import Protocol

from sparklog.node.config.definition import ConfigError
from sparklog.node.config.keys.remote_log_keys import RETENTION_AS_A_WHOLE

_ENABLE = "remote.storage.enable"


class TieredTopic(Protocol):
    """The part of a topic's configuration that the rules are about."""

    @property
    def remote_storage_enable(self) -> bool: ...

    @property
    def remote_log_copy_disable(self) -> bool: ...

    @property
    def remote_log_delete_on_disable(self) -> bool: ...

    @property
    def retention_ms(self) -> int | None: ...

    @property
    def retention_bytes(self) -> int | None: ...

    @property
    def local_retention_ms(self) -> int: ...

    @property
    def local_retention_bytes(self) -> int: ...


def check_remote_storage(config: TieredTopic, old: TieredTopic | None, *, has_tier: bool) -> None:
    """Refuse contradicting values; `old` is the topic's previous configuration, `None` for a new topic.

    Raises:
        ConfigError: the values contradict each other, or the cluster has no tier.
    """
    if not config.remote_storage_enable:
        if old is not None and old.remote_storage_enable and not config.remote_log_delete_on_disable:
            raise ConfigError(
                _ENABLE,
                "false",
                "It is invalid to disable remote storage without deleting remote data: set"
                " remote.log.delete.on.disable=true too, or keep the data for readers with"
                " remote.storage.enable=true and remote.log.copy.disable=true",
            )
        return
    if not has_tier:
        raise ConfigError(
            _ENABLE,
            "true",
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote"
            " log storage: the cluster has no sparklog.remote.uri",
        )
    for name, local, whole in (
        ("retention.bytes", config.local_retention_bytes, config.retention_bytes),
        ("retention.ms", config.local_retention_ms, config.retention_ms),
    ):
        if local == RETENTION_AS_A_WHOLE:
            continue
        if whole is not None and local == -1:
            raise ConfigError(
                f"local.{name}", "-1", f"Value must not be -1 as {name} value is set as {whole}."
            )
        if whole is not None and local > whole:
            raise ConfigError(
                f"local.{name}", str(local), f"Value must not be more than {name} property value: {whole}"
            )
        if config.remote_log_copy_disable and local != (-1 if whole is None else whole):
            raise ConfigError(
                f"local.{name}",
                str(local),
                f"with remote.log.copy.disable=true it must equal {name}, or be -2: nothing more is copied",
            )
