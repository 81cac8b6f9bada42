"""The table of a broker's listeners: the handler of each API.

A module here that has a function `handlers` is found without being listed. Requests that the controller
answers are forwarded, as their rows say; transactions and telemetry have handlers of their own.

A client's request passes, in this order: the quotas of its principal, the ACLs and the guard of its row
(`Admission`); the lease, where its row says so (`Route`); what is reserved for driver and brokers
(`guarded_cluster_actions`); the refusal of writes by a read-only cluster (`refusing_writes`); the handler.
"""

from importlib import import_module
from pkgutil import walk_packages

from sparklog.executor import api
from sparklog.executor.api.read_only import ReadOnly, refusing_writes
from sparklog.executor.api.services import BrokerServices
from sparklog.node.apis.cluster_actions import cluster_actions, guarded_cluster_actions
from sparklog.node.apis.listeners import listener_apis, offered
from sparklog.node.apis.row import Side
from sparklog.node.apis.table import FORWARDED_APIS
from sparklog.node.serving.requests import Api, Handler
from sparklog.protocol.codec.apis import ApiKey


def broker_apis(services: BrokerServices) -> dict[ApiKey, Api]:
    """Return the table of all listeners.

    Raises:
        ValueError: a row has no handler, or a handler no row.
    """
    handlers: dict[ApiKey, Handler] = {
        **dict.fromkeys(FORWARDED_APIS, services.senders.forwarder.forward),
        **services.replicas.coordinators.transactions.handlers(),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: services.monitoring.telemetry.get_subscriptions,
        ApiKey.PUSH_TELEMETRY: services.monitoring.telemetry.push,
    }
    for module in walk_packages(api.__path__, f"{api.__name__}."):
        make = getattr(import_module(module.name), "handlers", None)
        if make is not None:
            handlers |= make(services)
    apis = listener_apis(Side.BROKER, handlers, services.replicas.lease.obey)
    if missing := offered(Side.BROKER) - apis.keys():
        raise ValueError(f"no handlers: {', '.join(sorted(api_key.name for api_key in missing))}")
    apis = refusing_writes(apis, ReadOnly(services.config, services.image))
    return guarded_cluster_actions(apis, cluster_actions(Side.BROKER, services.config))
