"""What a broker's listener serves: which handler answers which API."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import SystemRandom

from sparklog.answers.descriptions import Descriptions
from sparklog.apis.inside import guarded_inside, only_inside
from sparklog.apis.listeners import listener_apis
from sparklog.apis.row import Side
from sparklog.apis.table import FORWARDED_APIS
from sparklog.config import BrokerConfig
from sparklog.executor.api.admin import AdminHandlers
from sparklog.executor.api.alter_replica_log_dirs import alter_replica_log_dirs
from sparklog.executor.api.delete_records import DeleteRecordsHandler
from sparklog.executor.api.describe import DescribeHandlers
from sparklog.executor.api.describe_log_dirs import describe_log_dirs
from sparklog.executor.api.describe_producers import DescribeProducersHandler
from sparklog.executor.api.fetch import FetchHandler
from sparklog.executor.api.find_coordinator import FindCoordinatorHandler
from sparklog.executor.api.list_offsets import ListOffsetsHandler
from sparklog.executor.api.machine.fetch_sessions import FetchSessions
from sparklog.executor.api.metadata import MetadataHandler
from sparklog.executor.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from sparklog.executor.api.produce import ProduceHandler
from sparklog.executor.api.write_txn_markers import WriteTxnMarkersHandler
from sparklog.executor.control.senders import Senders
from sparklog.executor.coordinators.groups.api.table import group_handlers
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.monitoring.broker_monitoring import BrokerMonitoring
from sparklog.executor.replicas import Replicas
from sparklog.metadata.image import MetadataImage
from sparklog.metrics import server
from sparklog.quotas.request_quotas import RequestQuotas
from sparklog.security.inside import ApplicationSecret
from sparklog.types import BrokerId
from sparklog.wire.apis import ApiKey
from sparklog.wire.fetch_metadata import LARGEST
from sparklog.wire.requests import Api, Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """What the handlers of one broker work with."""

    cluster_id: str
    node_id: BrokerId
    config: BrokerConfig
    image: Callable[[], MetadataImage]
    replicas: Replicas
    suspicions: BrokerSuspicions
    senders: Senders
    monitoring: BrokerMonitoring
    secret: ApplicationSecret


def broker_apis(services: BrokerServices, quotas: RequestQuotas) -> dict[ApiKey, Api]:
    """Return the table of all listeners."""
    metadata = MetadataHandler(
        services.image,
        cluster_id=services.cluster_id,
        node_id=services.node_id,
        suspicions=services.suspicions,
        auto_topic_creation=(
            services.senders.topic_creation if services.config.auto_create_topics_enable else None
        ),
    )
    describe = DescribeHandlers(
        services.image,
        cluster_id=services.cluster_id,
        node_id=services.node_id,
        config=services.config,
    )
    admin = AdminHandlers(services.senders.forwarder)
    handlers: dict[ApiKey, Handler] = {
        ApiKey.METADATA: metadata.handle,
        ApiKey.DESCRIBE_CLUSTER: describe.cluster,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe.topic_partitions,
        **Descriptions(services.image, services.config).handlers(),
        ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(
            services.image,
            node_id=services.node_id,
            suspicions=services.suspicions,
            create_topics=services.senders.topic_creation.create,
        ).handle,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: services.monitoring.telemetry.get_subscriptions,
        ApiKey.PUSH_TELEMETRY: services.monitoring.telemetry.push,
        **dict.fromkeys(FORWARDED_APIS, admin.handle),
    }
    replicas = services.replicas
    handlers |= group_handlers(
        replicas.coordinators.groups, replicas.table, replicas.transaction_verifier, services.config
    )
    apis = listener_apis(Side.BROKER, handlers, replicas.lease.obey)
    apis = {**partition_apis(replicas, services.config, quotas), **apis}
    return guarded_inside(apis, only_inside(Side.BROKER, services.config))


def partition_apis(replicas: Replicas, config: BrokerConfig, quotas: RequestQuotas) -> dict[ApiKey, Api]:
    """Return the part of the table that is about partitions, before the replicas have an image."""
    table, delayed, executor = replicas.table, replicas.delayed, replicas.executor
    sessions = FetchSessions(
        lambda: SystemRandom().randint(1, LARGEST), slots=config.max_incremental_fetch_session_cache_slots
    )
    replicas.metrics.gauge(server.FETCH_SESSIONS, lambda: len(sessions))
    delete_records = DeleteRecordsHandler(table, delayed)
    replicas.listeners.append(delete_records)
    handlers: dict[ApiKey, Handler] = {
        ApiKey.PRODUCE: ProduceHandler(
            table,
            delayed,
            replicas.examiners,
            replicas.transaction_verifier,
            max_decompressed_bytes=config.message_max_decompressed_bytes,
        ).handle,
        ApiKey.FETCH: FetchHandler(
            table,
            delayed,
            sessions,
            executor,
            max_response_bytes=config.fetch_max_bytes,
            leader_quota=replicas.replication_quotas.leader,
            consumer_quota=quotas.consumer,
        ).handle,
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(table, executor).handle,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(table).handle,
        ApiKey.DELETE_RECORDS: delete_records.handle,
        ApiKey.WRITE_TXN_MARKERS: WriteTxnMarkersHandler(
            table,
            delayed,
            config.request_timeout_ms,
            complete_group_transaction=replicas.coordinators.groups.complete_transaction,
        ).handle,
        ApiKey.DESCRIBE_PRODUCERS: DescribeProducersHandler(table).handle,
        ApiKey.DESCRIBE_LOG_DIRS: partial(describe_log_dirs, table=table, store=replicas.store),
        ApiKey.ALTER_REPLICA_LOG_DIRS: partial(alter_replica_log_dirs, moves=replicas.directory_moves),
        **replicas.coordinators.transactions.handlers(),
    }
    return listener_apis(Side.BROKER, handlers, replicas.lease.obey)
