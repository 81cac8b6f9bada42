"""The group coordinator, as a kind for the runtime."""

from typing import Final

from sparklog.executor.coordinators.coordinator_kind import CoordinatorKind
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.group_metrics import GroupMetrics
from sparklog.executor.coordinators.records.framing import CONSUMER_OFFSETS_RECORDS
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.records.codecs import Codec

_REST_S: Final = 0.0005
"""A million offsets are some thousand slices: the pauses add a second or two to their load."""


def group_coordinator(config: BrokerConfig, metrics: GroupMetrics) -> CoordinatorKind:
    """Return the kind of the group coordinators, which update `metrics`."""
    return CoordinatorKind(
        topic=CONSUMER_OFFSETS_TOPIC,
        records=CONSUMER_OFFSETS_RECORDS,
        new_machine=lambda partition: GroupMachine(config, metrics),
        write_timeout_ms=config.offsets_commit_timeout_ms,
        load_buffer_bytes=config.offsets_load_buffer_size,
        rest_s=_REST_S,
        codec=Codec(config.offsets_topic_compression_codec),
    )
