"""What a broker's listener serves: which handler answers which API."""

from collections.abc import Callable
from dataclasses import dataclass

from executor.api.admin import FORWARDED_APIS, AdminHandlers
from executor.api.describe import DescribeHandlers
from executor.api.init_producer_id import ProducerIdHandler
from executor.api.metadata import MetadataHandler
from executor.control.auto_topic_creation import AutoTopicCreation
from executor.control.forwarding import Forwarder
from executor.control.producer_id_blocks import ProducerIdBlocks
from executor.control.suspected_brokers import BrokerSuspicions
from executor.partitions.replicas import Replicas
from sparklog.answers.find_coordinator import handle_find_coordinator
from sparklog.config import BrokerConfig
from sparklog.metadata.image import MetadataImage
from sparklog.types import BrokerId
from sparklog.wire.apis import CLIENT_VERSIONS, ApiKey
from sparklog.wire.requests import Api, Handler

__all__ = ["BrokerServices", "broker_apis"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """What the handlers of one broker work with."""

    cluster_id: str
    node_id: BrokerId
    config: BrokerConfig
    image: Callable[[], MetadataImage]
    replicas: Replicas
    suspicions: BrokerSuspicions
    forwarder: Forwarder
    auto_topic_creation: AutoTopicCreation
    producer_ids: ProducerIdBlocks


def broker_apis(services: BrokerServices, listener_name: str) -> dict[ApiKey, Api]:
    """Return the table for one listener; addresses in answers are those of that listener."""
    replicas = services.replicas
    metadata = MetadataHandler(
        services.image,
        listener_name,
        cluster_id=services.cluster_id,
        node_id=services.node_id,
        suspicions=services.suspicions,
        auto_topic_creation=(
            services.auto_topic_creation if services.config.auto_create_topics_enable else None
        ),
    )
    describe = DescribeHandlers(
        services.image,
        listener_name,
        cluster_id=services.cluster_id,
        node_id=services.node_id,
        config=services.config,
    )
    admin = AdminHandlers(services.forwarder)
    handlers: dict[ApiKey, Handler] = {
        ApiKey.PRODUCE: replicas.handle_produce,
        ApiKey.FETCH: replicas.handle_fetch,
        ApiKey.LIST_OFFSETS: replicas.handle_list_offsets,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: replicas.handle_offset_for_leader_epoch,
        ApiKey.DELETE_RECORDS: replicas.handle_delete_records,
        ApiKey.DESCRIBE_LOG_DIRS: replicas.handle_describe_log_dirs,
        ApiKey.METADATA: metadata.handle,
        ApiKey.DESCRIBE_CLUSTER: describe.cluster,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe.topic_partitions,
        ApiKey.DESCRIBE_CONFIGS: describe.configs,
        ApiKey.INIT_PRODUCER_ID: ProducerIdHandler(services.producer_ids).handle,
        ApiKey.FIND_COORDINATOR: handle_find_coordinator,
        **dict.fromkeys(FORWARDED_APIS, admin.handle),
    }
    return {api_key: Api(*versions, handlers[api_key]) for api_key, versions in CLIENT_VERSIONS.items()}
