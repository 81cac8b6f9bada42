"""A conversation with the pure controller: requests are said, records are taken in at once."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from kio.schema.alter_partition.v3 import AlterPartitionRequest
from kio.schema.alter_partition.v3.request import BrokerState, PartitionData, TopicData
from kio.schema.broker_heartbeat.v2 import BrokerHeartbeatRequest
from kio.schema.broker_registration.v4 import BrokerRegistrationRequest
from kio.schema.broker_registration.v4.request import Feature, Listener
from kio.schema.create_topics.v7 import CreateTopicsRequest
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)

from sparklog.driver.controller.machine.controller import PARTITIONS_PER_DECISION, Controller
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.features import SUPPORTED_FEATURES
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.protocol.errors import ErrorCode

CLUSTER_ID = "test-cluster"
LEADER_EPOCH = 1


def topic_ids() -> Iterator[UUID]:
    """Yield ids that a test can foresee."""
    number = 1000
    while True:
        number += 1
        yield UUID(int=number)


def directory_of(broker_id: int) -> UUID:
    """Return the log directory that a test's broker has."""
    return UUID(int=5000 + broker_id)


def registration(
    broker_id: int,
    *,
    incarnation: int = 1,
    rack: str | None = None,
    cluster_id: str = CLUSTER_ID,
    directories: tuple[UUID, ...] | None = None,
    previous_broker_epoch: int = -1,
    port: int = 9092,
) -> Any:
    """Return a BrokerRegistration request."""
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=UUID(int=broker_id * 100 + incarnation),
        listeners=(Listener(name="PLAINTEXT", host="127.0.0.1", port=port, security_protocol=0),),
        features=tuple(
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
        ),
        rack=f"rack-{broker_id}" if rack is None else rack,
        log_dirs=(directory_of(broker_id),) if directories is None else directories,
        previous_broker_epoch=previous_broker_epoch,
    )


def heartbeat(broker_id: int, broker_epoch: int, offset: int) -> Any:
    """Return the heartbeat of a broker that is well."""
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        current_metadata_offset=offset,
        want_fence=False,
        want_shut_down=False,
    )


def creatable(
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    assignments: dict[int, tuple[int, ...]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> Any:
    """Return one topic of a CreateTopics request."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
            for number, replicas in (assignments or {}).items()
        ),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()),
    )


class Conversation:
    """The machine, with what a shell would do around it."""

    def __init__(self, *, partitions_per_decision: int = PARTITIONS_PER_DECISION, **config: str) -> None:
        """Make it; its sessions last 3 s unless `config`, keys with underscores for dots, says otherwise."""
        config = {"broker_session_timeout_ms": "3000", **config}
        self.config = BrokerConfig.from_mapping(
            {key.replace("_", "."): value for key, value in config.items()}
        )
        ids = topic_ids()
        self._new_controller = partial(
            Controller,
            CLUSTER_ID,
            self.config,
            lambda: next(ids),
            partitions_per_decision=partitions_per_decision,
        )
        self.controller = self._new_controller()
        self.now_ms = 0
        self.take(self.controller.bootstrap())

    def take_over(self) -> None:
        """Have another driver go on with what this one has decided."""
        self.controller = self._new_controller(self.image)
        self.take(self.controller.bootstrap())

    def restore(self, image: MetadataImage) -> None:
        """Have a driver begin at an image of another cluster's end."""
        self.controller = self._new_controller(image)
        self.take(self.controller.bootstrap())

    @property
    def image(self) -> MetadataImage:
        """The cluster as decided so far."""
        return self.controller.image

    def take(self, decision: ControllerResult) -> ControllerResult:
        """Give the machine its own records back."""
        if decision.records:
            last_offset = self.image.end_offset + len(decision.records) - 1
            self.controller.replay(decision.records, last_offset, LEADER_EPOCH)
        return decision

    def say(self, request: Any) -> ControllerResult:
        """Make a request and take its records in, to its last part."""
        while (decision := self.take(self.controller.handle(request, self.now_ms))).is_first_part:
            pass
        return decision

    def tick(self, passed_ms: int = 0) -> list[MetadataRecord]:
        """Let time pass in steps in which the controller is there; return all records."""
        records: list[MetadataRecord] = []
        for step_ms in [*[500] * (passed_ms // 500), passed_ms % 500]:
            self.now_ms += step_ms
            while (
                decision := self.take(self.controller.tick(self.now_ms))
            ).records or not self.controller.is_settled:
                records += decision.records
        return records

    def epoch(self, broker_id: int) -> int:
        """Return the broker's present epoch."""
        return self.image.brokers[broker_id].broker_epoch

    def heartbeat(self, broker_id: int, **changes: Any) -> ControllerResult:
        """Say what a broker says that is caught up and well, but for `changes`."""
        fields = {
            "broker_epoch": self.epoch(broker_id),
            "current_metadata_offset": self.image.offset,
            "want_fence": False,
            "want_shut_down": False,
        }
        return self.say(BrokerHeartbeatRequest(broker_id=broker_id, **(fields | changes)))

    def start(self, *broker_ids: int, rack: str | None = None) -> "Conversation":
        """Register and unfence brokers, each in a rack of its own unless `rack` is given."""
        for broker_id in broker_ids:
            reply = self.say(registration(broker_id, rack=rack)).reply
            assert reply.error_code is ErrorCode.none
            assert not self.heartbeat(broker_id).reply.is_fenced
        return self

    def create(self, *topics: Any, validate_only: bool = False) -> ControllerResult:
        """Create topics."""
        return self.say(
            CreateTopicsRequest(topics=topics, timeout=timedelta(seconds=1), validate_only=validate_only)
        )

    def topic_id(self, name: str = "t") -> UUID:
        """Return the id of a topic."""
        return self.image.topics.by_name[name].topic_id

    def partition(self, number: int = 0, name: str = "t") -> PartitionRegistration:
        """Return a partition."""
        return self.image.topics.by_name[name].partitions[number]

    def propose(self, broker_id: int, isr: tuple[int, ...], **changes: Any) -> ControllerResult:
        """Propose an ISR for partition 0 of topic `t` as its leader would, but for `changes`."""
        partition = self.partition()
        epochs = changes.pop("broker_epochs", {})
        topic_id = changes.pop("topic_id", self.topic_id())
        broker_epoch = changes.pop("broker_epoch", self.epoch(broker_id))
        fields = {
            "partition_index": 0,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "leader_recovery_state": int(partition.leader_recovery_state),
            "new_isr_with_epochs": tuple(
                BrokerState(broker_id=member, broker_epoch=epochs.get(member, self.epoch(member)))
                for member in isr
            ),
        }
        return self.say(
            AlterPartitionRequest(
                broker_id=broker_id,
                broker_epoch=broker_epoch,
                topics=(TopicData(topic_id=topic_id, partitions=(PartitionData(**(fields | changes)),)),),
            )
        )
