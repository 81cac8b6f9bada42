"""The quotas of one broker's replication and of its moves between directories, as configured now."""

from sparklog.executor.partitions.machine.replication_quota import ReplicationQuota
from sparklog.node.config import BrokerConfig
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerId


class ReplicationQuotas:
    def __init__(self, broker_id: BrokerId, config: BrokerConfig) -> None:
        self._broker_id = broker_id
        self._started_with = config
        self.leader = ReplicationQuota(broker_id, config.replication_quota_windows)
        self.follower = ReplicationQuota(broker_id, config.replication_quota_windows)
        self.alter_log_dirs = ReplicationQuota(broker_id, config.alter_log_dirs_quota_windows)
        self._obey(config)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if delta.reconfigures_broker(self._broker_id):
            own = image.broker_configs(self._broker_id)
            self._obey(with_dynamic(self._started_with, image.broker_configs(None), own))

    def _obey(self, config: BrokerConfig) -> None:
        self.leader.limit(config.leader_replication_throttled_rate)
        self.follower.limit(config.follower_replication_throttled_rate)
        self.alter_log_dirs.limit(config.replica_alter_log_dirs_io_max_bytes_per_second)
