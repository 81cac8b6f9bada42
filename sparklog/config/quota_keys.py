"""The broker keys about over which time quotas are measured."""

from dataclasses import dataclass

from sparklog.config.definition import ConfigType, at_least, config_key
from sparklog.rates import QuotaWindows


@dataclass(frozen=True, kw_only=True)
class QuotaKeys:
    """How rates are measured that have a quota."""

    quota_window_num: int = config_key(
        "quota.window.num",
        ConfigType.INT,
        11,
        "Over how many windows the rates of clients and of new connections are measured.",
        at_least(1),
    )
    quota_window_size_seconds: int = config_key(
        "quota.window.size.seconds", ConfigType.INT, 1, "How long each of them is.", at_least(1)
    )
    controller_quota_window_num: int = config_key(
        "controller.quota.window.num",
        ConfigType.INT,
        11,
        "How many windows' worth of changes of partitions a client may ask for at once.",
        at_least(1),
    )
    controller_quota_window_size_seconds: int = config_key(
        "controller.quota.window.size.seconds", ConfigType.INT, 1, "How long each of them is.", at_least(1)
    )

    @property
    def quota_windows(self) -> QuotaWindows:
        """How the rates of clients and of new connections are measured."""
        return QuotaWindows(self.quota_window_num, self.quota_window_size_seconds * 1000)

    @property
    def controller_quota_windows(self) -> QuotaWindows:
        """How changes of partitions are measured."""
        return QuotaWindows(
            self.controller_quota_window_num, self.controller_quota_window_size_seconds * 1000
        )
