"""The refusal of clients' writes while the cluster is read-only.

An orderly stop of a cluster with a tier makes it read-only, so that each log comes to an end that can be
copied. The error codes are those after which clients try again, at any broker that leads then: a producer
goes on after the next start of the cluster, if its delivery.timeout.ms lasts. Brokers and the controller
write on: markers of transactions, and the records of coordinators. EndTxn is allowed, as it ends what an
orderly stop waits for, and so are heartbeats of members of a group: the sessions of all would run out else,
and the coordinator write that down. Members neither join nor leave.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from sparklog.node.apis.row import ApiRow
from sparklog.node.apis.table import ROWS
from sparklog.node.config import BrokerConfig
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.metadata.image import ConfigResource, MetadataImage
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL
from sparklog.node.serving.requests import Api, Handler, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError

REFUSALS: Final[Mapping[ApiKey, ErrorCode]] = MappingProxyType(
    {
        ApiKey.PRODUCE: ErrorCode.not_leader_or_follower,
        ApiKey.DELETE_RECORDS: ErrorCode.not_leader_or_follower,
        ApiKey.ADD_PARTITIONS_TO_TXN: ErrorCode.coordinator_not_available,
        ApiKey.ADD_OFFSETS_TO_TXN: ErrorCode.coordinator_not_available,
        ApiKey.TXN_OFFSET_COMMIT: ErrorCode.coordinator_not_available,
        ApiKey.INIT_PRODUCER_ID: ErrorCode.coordinator_not_available,
        ApiKey.OFFSET_COMMIT: ErrorCode.coordinator_not_available,
        ApiKey.OFFSET_DELETE: ErrorCode.coordinator_not_available,
        ApiKey.DELETE_GROUPS: ErrorCode.coordinator_not_available,
        ApiKey.JOIN_GROUP: ErrorCode.coordinator_not_available,
        ApiKey.SYNC_GROUP: ErrorCode.coordinator_not_available,
        ApiKey.LEAVE_GROUP: ErrorCode.coordinator_not_available,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ErrorCode.coordinator_not_available,
    }
)
"""The requests that a read-only broker refuses to clients, and the error of each."""

_MESSAGE: Final = "the cluster is read-only (sparklog.read.only), since it is about to stop"


class ReadOnly:
    """Whether a broker is read-only, by its newest metadata."""

    def __init__(self, config: BrokerConfig, image: Callable[[], MetadataImage]) -> None:
        self._started_with = config
        self._image = image
        self._configs: Mapping[ConfigResource, Mapping[str, str]] | None = None
        self._is_on = False

    def __call__(self) -> bool:
        image = self._image()
        if image.configs is not self._configs:
            self._configs = image.configs
            own = image.broker_configs(self._started_with.node_id)
            obeyed = with_dynamic(self._started_with, image.broker_configs(None), own)
            self._is_on = obeyed.sparklog_read_only
        return self._is_on


def refusing_writes(apis: Mapping[ApiKey, Api], is_read_only: Callable[[], bool]) -> dict[ApiKey, Api]:
    """Return a broker's table whose clients cannot write while `is_read_only`."""
    return {
        api_key: api._replace(handler=_refusing(ROWS[api_key], api.handler, REFUSALS[api_key], is_read_only))
        if api_key in REFUSALS
        else api
        for api_key, api in apis.items()
    }


def _refusing(
    row: ApiRow, handler: Handler, error_code: ErrorCode, is_read_only: Callable[[], bool]
) -> Handler:
    def handle(request: Request) -> Any:
        if not is_read_only() or request.principal is CLUSTER_PRINCIPAL or _writes_nothing(request):
            return handler(request)
        if row.api_key is ApiKey.PRODUCE and request.body.acks == 0:
            # It has no response: the connection ends instead, as Kafka's does.
            raise KafkaError(error_code, _MESSAGE)
        return row.refuse(request, KafkaError(error_code, _MESSAGE))

    return handle


def _writes_nothing(request: Request) -> bool:
    """Return whether this is the heartbeat of a member that stays."""
    return request.api_key is ApiKey.CONSUMER_GROUP_HEARTBEAT and request.body.member_epoch > 0
