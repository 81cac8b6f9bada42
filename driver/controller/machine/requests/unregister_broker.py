"""UnregisterBroker: a broker that will not come back is forgotten.

The rules:

- It counts for nothing from then on: it leaves every ISR and, since the way it stopped remains unknown, the
  eligible leader replicas (KIP-966), before it is forgotten. If it comes back after all it registers again,
  and must catch up.
- Its replicas stay in the assignments of their partitions until these are moved (`alter_reassignments`).

Source: Kafka's ReplicationControlManager; KIP-631.
"""

import logging

from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.elections import remove_from_isrs, remove_lost_replicas
from sparklog.driver.controller.machine.fencing import becomes_fenced
from sparklog.node.metadata.schemas import UnregisterBrokerRecord
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


def unregister_broker(cluster: ClusterState, request: UnregisterBrokerRequest) -> ControllerResult:
    """Answer UnregisterBroker, in several decisions if it is in very many ISRs."""
    broker_id = request.broker_id
    registration = cluster.image.brokers.get(broker_id)
    if registration is None:
        return ControllerResult(
            [],
            unthrottled(
                UnregisterBrokerResponse,
                error_code=ErrorCode.broker_id_not_registered,
                error_message=f"Broker ID {broker_id} is not currently registered",
            ),
        )
    if cluster.has_eligible_leader_replicas:
        records = remove_lost_replicas(cluster, broker_id)
    else:
        records = remove_from_isrs(cluster, (broker_id,))
    if len(records) == cluster.partitions_per_decision:
        # There may be more, and it must not come back into an ISR by never having left it.
        return ControllerResult([*records, becomes_fenced(registration)], None, is_first_part=True)
    logger.info("Broker %d is unregistered", broker_id)
    cluster.sessions.end(broker_id)
    return ControllerResult(
        [*records, UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registration.broker_epoch)],
        unthrottled(UnregisterBrokerResponse, error_code=ErrorCode.none, error_message=None),
    )
