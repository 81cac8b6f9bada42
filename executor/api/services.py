"""The parts of a broker that its API handlers use."""

from collections.abc import Callable
from dataclasses import dataclass

from sparklog.executor.control.senders import Senders
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.monitoring.broker_monitoring import BrokerMonitoring
from sparklog.executor.replicas import Replicas
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.quotas.request_quotas import RequestQuotas
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.protocol.types import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionServices:
    config: BrokerConfig
    replicas: Replicas
    quotas: RequestQuotas


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices(PartitionServices):
    cluster_id: str
    node_id: BrokerId
    image: Callable[[], MetadataImage]
    suspicions: BrokerSuspicions
    senders: Senders
    monitoring: BrokerMonitoring
    secret: ApplicationSecret
