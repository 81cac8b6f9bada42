"""What only driver and brokers may ask of each other, whether there is an authorizer or not.

Who registers as a broker, votes, changes an ISR, forwards requests in others' names or fetches as a replica
could take the cluster over. So these requests are answered for `INSIDE` alone, and everybody else is told
CLUSTER_AUTHORIZATION_FAILED, as Kafka tells those who lack CLUSTER_ACTION. No ACL gives it to a user. The
CONTROLLER listeners of brokers let nobody else in.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from sparklog.config import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.security.inside import INSIDE
from sparklog.wire.apis import ApiKey
from sparklog.wire.requests import Api, Handler, Request

_FETCH_WITH_STATE: Final = 15
"""From this version on a follower says its id in a field of its own (KIP-903)."""
_FIRST_ADD_PARTITIONS_OF_BROKERS: Final = 4

IsInside = Callable[[Request], bool]
"""Whether a request is one that only those inside may make."""


def _always(request: Request) -> bool:
    return True


def _fetches_as_replica(request: Request) -> bool:
    body = request.body
    if request.api_version >= _FETCH_WITH_STATE:
        return bool(body.replica_state.replica_id >= 0)
    return bool(body.replica_id >= 0)


def _adds_for_others(request: Request) -> bool:
    return request.api_version >= _FIRST_ADD_PARTITIONS_OF_BROKERS


def _commits(request: Request) -> bool:
    return any(marker.transaction_result for marker in request.body.markers)


OF_CONTROLLER: Final[Mapping[ApiKey, IsInside]] = dict.fromkeys(
    (
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
    ),
    _always,
)
"""On the controller's listener."""


def only_inside_of_brokers(config: BrokerConfig) -> Mapping[ApiKey, IsInside]:
    """Return what it is on the listeners of clients."""
    only_inside: dict[ApiKey, IsInside] = {
        ApiKey.FETCH: _fetches_as_replica,
        ApiKey.ADD_PARTITIONS_TO_TXN: _adds_for_others,
    }
    if config.authorizer is None:
        # An authorizer says who may write markers, as in Kafka. Without one anybody may abort a transaction
        # that hangs, as kafka-transactions does, but commit none.
        only_inside[ApiKey.WRITE_TXN_MARKERS] = _commits
    return only_inside


def guarded_inside(apis: Mapping[ApiKey, Api], only_inside: Mapping[ApiKey, IsInside]) -> dict[ApiKey, Api]:
    """Return a listener's table in which what only those inside may ask is asked by nobody else."""
    return {
        api_key: api._replace(handler=_guarded(api.handler, only_inside[api_key]))
        if api_key in only_inside
        else api
        for api_key, api in apis.items()
    }


def _guarded(handler: Handler, is_inside: IsInside) -> Handler:
    def handle(request: Request) -> Any:
        if request.principal is not INSIDE and is_inside(request):
            return _refused(request)
        return handler(request)

    return handle


def _refused(request: Request) -> Any:
    from sparklog.authorization.guards.refusals import refused

    error_code, name = ErrorCode.cluster_authorization_failed, request.api_key.name
    what = f"{name} is for the application's own driver and brokers, and {request.principal} is neither"
    request.connection.note(f"{name} {error_code.name}", what)
    return refused(request, error_code)
