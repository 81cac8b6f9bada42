"""The table of a broker's listeners: the handler of each API.

A module here that has a function `handlers` is found without being listed.
"""

from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from random import SystemRandom

from sparklog.executor import api
from sparklog.executor.api.alter_replica_log_dirs import alter_replica_log_dirs
from sparklog.executor.api.delete_records import DeleteRecordsHandler
from sparklog.executor.api.describe_log_dirs import describe_log_dirs
from sparklog.executor.api.describe_producers import DescribeProducersHandler
from sparklog.executor.api.fetch.fetch import FetchHandler
from sparklog.executor.api.fetch.fetch_sessions import FetchSessions
from sparklog.executor.api.list_offsets import ListOffsetsHandler
from sparklog.executor.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from sparklog.executor.api.produce.produce import ProduceHandler
from sparklog.executor.api.read_only import ReadOnly, refusing_writes
from sparklog.executor.api.services import BrokerServices
from sparklog.executor.api.write_txn_markers import WriteTxnMarkersHandler
from sparklog.executor.coordinators.groups.api.table import group_handlers
from sparklog.executor.replicas import Replicas
from sparklog.node.apis.cluster_actions import cluster_actions, guarded_cluster_actions
from sparklog.node.apis.listeners import listener_apis, offered
from sparklog.node.apis.row import Side
from sparklog.node.config import BrokerConfig
from sparklog.node.metrics import server
from sparklog.node.quotas.request_quotas import RequestQuotas
from sparklog.node.responses.descriptions import Descriptions
from sparklog.node.serving.requests import Api, Handler
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.fetch_metadata import LARGEST


def broker_apis(services: BrokerServices, quotas: RequestQuotas) -> dict[ApiKey, Api]:
    """Return the table of all listeners.

    Raises:
        ValueError: a row has no handler, or a handler no row.
    """
    replicas, telemetry = services.replicas, services.monitoring.telemetry
    handlers: dict[ApiKey, Handler] = {
        **_found(services),
        **Descriptions(services.image, services.config).handlers(),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: telemetry.get_subscriptions,
        ApiKey.PUSH_TELEMETRY: telemetry.push,
        **group_handlers(
            replicas.coordinators.groups, replicas.table, replicas.transaction_verifier, services.config
        ),
    }
    apis = partition_apis(replicas, services.config, quotas)
    apis |= listener_apis(Side.BROKER, handlers, replicas.lease.obey)
    if missing := offered(Side.BROKER) - apis.keys():
        raise ValueError(f"no handlers: {', '.join(sorted(api_key.name for api_key in missing))}")
    apis = refusing_writes(apis, ReadOnly(services.config, services.image))
    return guarded_cluster_actions(apis, cluster_actions(Side.BROKER, services.config))


def _found(services: BrokerServices) -> dict[ApiKey, Handler]:
    found: dict[ApiKey, Handler] = {}
    for module in iter_modules(api.__path__):
        make = getattr(import_module(f"{api.__name__}.{module.name}"), "handlers", None)
        if make is not None:
            found |= make(services)
    return found


def partition_apis(replicas: Replicas, config: BrokerConfig, quotas: RequestQuotas) -> dict[ApiKey, Api]:
    """Return the rows of partition APIs. The replicas need no image yet."""
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
            remote=replicas.remote_reader,
        ).handle,
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(
            table,
            executor,
            replicas.remote_reader,
            remote_timeout_ms=config.remote_list_offsets_request_timeout_ms,
        ).handle,
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
