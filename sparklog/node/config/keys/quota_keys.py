"""The broker keys of quotas: the windows of their rates, and the rates of replication."""

from dataclasses import dataclass

from sparklog.node.config.key_table import broker_key
from sparklog.node.rates import QuotaWindows


@dataclass(frozen=True, kw_only=True)
class QuotaKeys:
    quota_window_num: int = broker_key("quota.window.num")
    quota_window_size_seconds: int = broker_key("quota.window.size.seconds")
    controller_quota_window_num: int = broker_key("controller.quota.window.num")
    controller_quota_window_size_seconds: int = broker_key("controller.quota.window.size.seconds")

    replication_quota_window_num: int = broker_key("replication.quota.window.num")
    replication_quota_window_size_seconds: int = broker_key("replication.quota.window.size.seconds")
    leader_replication_throttled_rate: int = broker_key("leader.replication.throttled.rate")
    follower_replication_throttled_rate: int = broker_key("follower.replication.throttled.rate")

    alter_log_dirs_replication_quota_window_num: int = broker_key(
        "alter.log.dirs.replication.quota.window.num"
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = broker_key(
        "alter.log.dirs.replication.quota.window.size.seconds"
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = broker_key(
        "replica.alter.log.dirs.io.max.bytes.per.second"
    )

    @property
    def alter_log_dirs_quota_windows(self) -> QuotaWindows:
        return QuotaWindows(
            self.alter_log_dirs_replication_quota_window_num,
            self.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        )

    @property
    def replication_quota_windows(self) -> QuotaWindows:
        return QuotaWindows(
            self.replication_quota_window_num, self.replication_quota_window_size_seconds * 1000
        )

    @property
    def quota_windows(self) -> QuotaWindows:
        return QuotaWindows(self.quota_window_num, self.quota_window_size_seconds * 1000)

    @property
    def controller_quota_windows(self) -> QuotaWindows:
        return QuotaWindows(
            self.controller_quota_window_num, self.controller_quota_window_size_seconds * 1000
        )
