"""Kafka reads a metadata log and a snapshot of ours, field by field, and we read a snapshot of Kafka's."""

import re
from pathlib import Path
from uuid import UUID

from sparklog.node.metadata.framing import encode_record
from sparklog.node.metadata.schemas import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot, encode_snapshot
from sparklog.node.metadata_log.machine.snapshot_records import snapshot_records
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet
from sparklog.node.metadata_log.snapshot_files import PartialSnapshot, list_snapshots, snapshot_path
from sparklog.node.metadata_log.snapshot_store import read_snapshot
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.compat.kafka_programs import DUMP_LOG_SEGMENTS, KafkaProgram, as_kafka_shows_it, dump_metadata
from tests.unit.sparklog.node.metadata.images import image_with_partitions

TOPIC_ID = UUID("01234567-89ab-cdef-8899-aabbccddeeff")
DIRECTORY = UUID(int=77)

RECORDS: tuple[MetadataRecord, ...] = (
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    RegisterBrokerRecord(
        broker_id=3,
        incarnation_id=TOPIC_ID,
        broker_epoch=12,
        end_points=(BrokerEndpoint(name="PLAINTEXT", host="10.0.0.7", port=65000, security_protocol=0),),
        features=(BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30),),
        rack="rack-1",
        log_dirs=(DIRECTORY,),
        cordoned_log_dirs=(DIRECTORY,),
    ),
    BrokerRegistrationChangeRecord(
        broker_id=3,
        broker_epoch=12,
        fenced=-1,
        in_controlled_shutdown=1,
        log_dirs=(DIRECTORY,),
        cordoned_log_dirs=(),
    ),
    TopicRecord(name="flights", topic_id=TOPIC_ID),
    PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=(1, 2, 3),
        isr=(1,),
        removing_replicas=(3,),
        adding_replicas=(2,),
        leader=-1,
        leader_recovery_state=1,
        leader_epoch=4,
        partition_epoch=9,
        directories=(DIRECTORY, DIRECTORY, DIRECTORY),
        eligible_leader_replicas=(2,),
        last_known_elr=(3,),
    ),
    PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(2,), leader=2),
    PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        isr=(),
        leader=-1,
        replicas=(4, 5),
        removing_replicas=(),
        adding_replicas=(5,),
        leader_recovery_state=0,
        directories=(DIRECTORY, DIRECTORY),
        eligible_leader_replicas=(4,),
        last_known_elr=(),
    ),
    ConfigRecord(resource_type=2, resource_name="flights", name="retention.ms", value="60000"),
    ConfigRecord(resource_type=2, resource_name="flights", name="retention.ms", value=None),
    ClientQuotaRecord(
        entity=(QuotaEntityData(entity_type="user", entity_name=None),), key="producer_byte_rate", value=1e6
    ),
    ProducerIdsRecord(broker_id=3, broker_epoch=12, next_producer_id=2000),
    AccessControlEntryRecord(
        id=TOPIC_ID,
        resource_type=2,
        resource_name="flights",
        pattern_type=3,
        principal="User:ann",
        host="*",
        operation=4,
        permission_type=3,
    ),
    RemoveAccessControlEntryRecord(id=TOPIC_ID),
    RemoveTopicRecord(topic_id=TOPIC_ID),
    UnregisterBrokerRecord(broker_id=3, broker_epoch=12),
)


def test_kafkas_metadata_decoder_shows_every_record_as_it_was_written(
    tmp_path: Path, kafka_program: KafkaProgram
) -> None:
    """Golden bytes could be wrong in the same way on both sides of a test; Kafka's reader could not."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    segment = directory / "00000000000000000000.log"
    values = [SimpleRecord(value=encode_record(record), timestamp_ms=1) for record in RECORDS]
    segment.write_bytes(build_batch(values, base_offset=0, leader_epoch=1))
    assert dump_metadata(kafka_program, segment) == [as_kafka_shows_it(record) for record in RECORDS]


def test_kafkas_metadata_decoder_reads_a_snapshot(tmp_path: Path, kafka_program: KafkaProgram) -> None:
    """Header, voters, every record and footer, under the id that Kafka finds in the file's name."""
    voters = VoterSet.of(
        Voter(VoterKey(node_id, UUID(int=node_id)), "127.0.0.1", 9000 + node_id) for node_id in (1, 2, 3)
    )
    snapshot = MetadataSnapshot(image_with_partitions(20_000), voters, last_timestamp_ms=1_700_000_000_000)
    with PartialSnapshot(tmp_path, snapshot.snapshot_id) as partial:
        for batch in encode_snapshot(snapshot):
            partial.append(batch)
        path = partial.finish()
    assert dump_metadata(kafka_program, path) == [
        as_kafka_shows_it(record) for record in snapshot_records(snapshot.image)
    ]
    dump = kafka_program(DUMP_LOG_SEGMENTS, "--cluster-metadata-decoder", "--files", str(path)).stdout
    assert "Snapshot end offset: 20001, epoch: 4" in dump
    assert 'SnapshotHeader {"version":0,"lastContainedLogTimestamp":1700000000000}' in dump
    assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in dump
    assert re.findall(r'"voterId":(\d+)', dump) == ["1", "2", "3"]
    assert dump.rstrip().endswith('SnapshotFooter {"version":0}')
    assert "isvalid: false" not in dump


def test_snapshot_that_kafka_wrote_is_read(tmp_path: Path, kafka_program: KafkaProgram) -> None:
    """A freshly formatted voter of Kafka's has one, which says who votes and nothing else."""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "controller.quorum.bootstrap.servers=localhost:19093\n"
        "listeners=PLAINTEXT://localhost:19092,CONTROLLER://localhost:19093\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    arguments = ("format", "--standalone", "--cluster-id", "4L6g3nShT-eMCtK--X86sw", "--config")
    kafka_program("kafka.tools.StorageTool", *arguments, str(properties))
    directory = tmp_path / "data" / "__cluster_metadata-0"
    (snapshot_id,) = list_snapshots(directory)
    snapshot = read_snapshot(snapshot_path(directory, snapshot_id), snapshot_id)
    assert snapshot.voters is not None
    (voter,) = snapshot.voters
    assert (voter.key.node_id, voter.host, voter.port) == (1, "localhost", 19093)
    assert snapshot.last_timestamp_ms > 0
    assert not snapshot.image.features
