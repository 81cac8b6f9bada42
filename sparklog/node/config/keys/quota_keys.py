"""The broker keys of quotas: the windows of their rates, and the rates of replication."""

from dataclasses import dataclass

from sparklog.node.config.definition import INT, LONG, LONG_MAX, at_least, config_key
from sparklog.node.rates import QuotaWindows


@dataclass(frozen=True, kw_only=True)
class QuotaKeys:
    quota_window_num: int = config_key(
        INT,
        11,
        "Over how many windows the rates of clients and of new connections are measured.",
        at_least(1),
    )
    quota_window_size_seconds: int = config_key(INT, 1, "How long each window is.", at_least(1))
    controller_quota_window_num: int = config_key(
        INT, 11, "How many windows' worth of changes of partitions a client may ask for at once.", at_least(1)
    )
    controller_quota_window_size_seconds: int = config_key(INT, 1, "How long each window is.", at_least(1))

    replication_quota_window_num: int = config_key(
        INT, 11, "Over how many windows the rates of throttled replicas are measured.", at_least(1)
    )
    replication_quota_window_size_seconds: int = config_key(INT, 1, "How long each window is.", at_least(1))
    leader_replication_throttled_rate: int = config_key(
        LONG,
        LONG_MAX,
        "How many bytes a second a broker sends to followers that are not in sync, for replicas that topics"
        " list in leader.replication.throttled.replicas.",
        at_least(0),
    )
    follower_replication_throttled_rate: int = config_key(
        LONG,
        LONG_MAX,
        "How many bytes a second a broker fetches for replicas that are not in sync, of those that topics"
        " list in follower.replication.throttled.replicas.",
        at_least(0),
    )

    alter_log_dirs_replication_quota_window_num: int = config_key(
        INT,
        11,
        "Over how many windows the rate of moves between a broker's directories is measured.",
        at_least(1),
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = config_key(
        INT, 1, "How long each window is.", at_least(1)
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = config_key(
        LONG,
        LONG_MAX,
        "How many bytes a second a broker copies from one of its directories to another.",
        at_least(0),
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
