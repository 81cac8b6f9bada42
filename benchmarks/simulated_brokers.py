"""Registrations of brokers that a benchmark's controller takes for real ones."""

from typing import Final
from uuid import UUID, uuid4

from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest, Feature, Listener

from sparklog.node.metadata.features import SUPPORTED_FEATURES
from sparklog.protocol.types import BrokerId

CLUSTER_ID: Final = "benchmark"


def registration(broker_id: BrokerId, rack: str, directory_id: UUID) -> BrokerRegistrationRequest:
    """Return the request of a broker's first incarnation or of another one."""
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid4(),
        # Nothing listens there: followers find their leaders dead and try again later.
        listeners=(Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0),),
        features=tuple(
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
        ),
        rack=rack,
        log_dirs=(directory_id,),
    )
