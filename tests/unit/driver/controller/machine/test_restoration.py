"""The metadata of a cluster that begins again with empty disks, and its first minutes."""

from dataclasses import replace
from uuid import UUID

from sparklog.driver.controller.machine.placement import UsableBroker
from sparklog.driver.controller.machine.restoration import (
    UNSEEN_ELECTIONS,
    UNSEEN_PRODUCER_IDS,
    restored_image,
)
from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration, ResourceType
from sparklog.node.metadata.schemas import UNASSIGNED_DIRECTORY, LeaderRecoveryState
from sparklog.node.metadata_log.machine.snapshot_batches import (
    MetadataSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.types import SnapshotId
from tests.unit.driver.controller.conversation import Conversation, creatable
from tests.unit.driver.ui.cluster_images import broker, image, partition

THREE = [UsableBroker(number, f"rack-{number}", False) for number in range(3)]
SESSION_MS = 3_000


def one(restored: MetadataImage, name: str = "t", number: int = 0) -> PartitionRegistration:
    return restored.topics.by_name[name].partitions[number]


def test_partitions_of_the_same_brokers_keep_them_and_lead_in_a_higher_epoch() -> None:
    """All replicas are empty alike, so the first leads at once, in an epoch that tells consumers of it."""
    lost = partition(None, (2,), replicas=(2, 0, 1), elr=(0,), last_known_elr=(1,), leader_epoch=4)
    moving = partition(
        1,
        (1, 0),
        replicas=(2, 1, 0),
        removing_replicas=(0,),
        adding_replicas=(2,),
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
    )
    restored = restored_image(image({"t": [lost, moving]}), THREE)
    assert restored.brokers == {}
    assert one(restored) == PartitionRegistration(
        replicas=(2, 0, 1),
        directories=(UNASSIGNED_DIRECTORY,) * 3,
        isr=(2, 0, 1),
        leader=2,
        leader_epoch=4 + UNSEEN_ELECTIONS,
        partition_epoch=1 + UNSEEN_ELECTIONS,
    )
    assert one(restored, number=1).replicas == (2, 1)
    assert restored.topics.by_id[UUID(int=100)] is restored.topics.by_name["t"]


def test_restored_image_has_an_id_of_its_own() -> None:
    """A broker that had the stored snapshot under the same id would never fetch this one."""
    saved = replace(image({"t": [partition()]}), offset=41, leader_epoch=3)
    restored = restored_image(saved, THREE)
    assert (restored.end_offset, restored.leader_epoch) == (43, 3 + UNSEEN_ELECTIONS)
    snapshot = MetadataSnapshot(restored, None, 7)
    data = b"".join(encode_snapshot(snapshot))
    batches = [data[at : at + header.size_bytes] for at, header in iterate_headers(data)]
    assert decode_snapshot(SnapshotId(43, 3 + UNSEEN_ELECTIONS), batches) == snapshot


def test_numbers_leave_gaps_for_what_the_snapshot_has_not_seen() -> None:
    """Two leaders of one epoch, or two producers of one id, would be taken for the same.

    The last snapshot of an orderly stop is no exception: the cluster ran on until its brokers had left.
    """
    saved = replace(image({"t": [partition(leader_epoch=7)]}), next_producer_id=5_000)
    restored = restored_image(saved, THREE)
    assert one(restored).leader_epoch == 7 + UNSEEN_ELECTIONS
    assert restored.leader_epoch == saved.leader_epoch + UNSEEN_ELECTIONS
    assert restored.next_producer_id == 5_000 + UNSEEN_PRODUCER_IDS


def test_starts_from_one_snapshot_leave_a_gap_each() -> None:
    """One that ended before its first snapshot has led all the same, and manifests have its epochs."""
    saved = replace(image({"t": [partition(leader_epoch=7)]}), next_producer_id=5_000)
    between, restored = restored_image(saved, THREE), restored_image(saved, THREE, starts_before=1)
    assert one(restored).leader_epoch == one(between).leader_epoch + UNSEEN_ELECTIONS
    assert one(restored).partition_epoch == one(between).partition_epoch + UNSEEN_ELECTIONS
    assert restored.leader_epoch == between.leader_epoch + UNSEEN_ELECTIONS
    assert restored.next_producer_id == between.next_producer_id + UNSEEN_PRODUCER_IDS


def test_configurations_acls_quotas_and_features_stay() -> None:
    """The cluster is the same one; only the mark of its stop goes."""
    every_broker, topic = (int(ResourceType.BROKER), ""), (int(ResourceType.TOPIC), "t")
    acl = Acl(
        AclResourceType.TOPIC,
        PatternType.LITERAL,
        "t",
        "User:u",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    saved = replace(
        image({"t": [partition()]}),
        configs={
            every_broker: {"min.insync.replicas": "2", "sparklog.read.only": "true"},
            topic: {"retention.ms": "5"},
        },
        acls={UUID(int=5): acl},
        client_quotas={(("user", "u"),): {"producer_byte_rate": 5.0}},
        features={"metadata.version": 25},
    )
    restored = restored_image(saved, THREE)
    assert restored.configs == {every_broker: {"min.insync.replicas": "2"}, topic: {"retention.ms": "5"}}
    assert (restored.acls, restored.client_quotas) == (saved.acls, saved.client_quotas)
    assert restored.features == saved.features


def test_other_brokers_get_the_partitions_as_placement_gives_new_ones() -> None:
    """Nothing lies on any disk, so a cluster of another size is balanced from its first moment."""
    saved = image({"t": [partition() for _ in range(4)]}, b2=broker(2, rack="elsewhere"))
    grown = [UsableBroker(number, f"rack-{number}", False) for number in range(4)]
    restored = restored_image(saved, grown)
    assert [each.replicas for each in restored.topics.by_name["t"].partitions.values()] == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 0),
        (3, 0, 1),
    ]
    shrunk = restored_image(saved, [UsableBroker(7, "rack-7", False)])
    assert {each.isr for each in shrunk.topics.by_name["t"].partitions.values()} == {(7,)}


def restored_conversation() -> Conversation:
    before = Conversation().start(0, 1, 2)
    before.create(creatable("t", partitions=3, replication_factor=3))
    restored = restored_image(before.image, THREE)
    after = Conversation()
    after.restore(restored)
    return after


def test_read_only_mark_of_a_stop_is_removed_by_a_start_over_the_same_directories() -> None:
    """Their metadata log has it, and producers wait for the cluster to take writes again."""
    conversation = Conversation().start(0)
    every_broker = (int(ResourceType.BROKER), "")
    marked = {**conversation.image.configs, every_broker: {"sparklog.read.only": "true"}}
    conversation.restore(replace(conversation.image, configs=marked))
    assert "sparklog.read.only" not in conversation.image.broker_configs(None)


def test_partitions_of_a_broker_that_is_not_there_are_placed_again() -> None:
    """A replica on it would never come."""
    restored = restored_image(image({"t": [partition(replicas=(0, 1, 9))]}), THREE)
    assert set(one(restored).replicas) == {0, 1, 2}


def test_leaders_that_register_lead_without_an_election() -> None:
    """Ten thousand partitions begin without a change of any."""
    conversation = restored_conversation()
    epochs = [conversation.partition(number).leader_epoch for number in range(3)]
    conversation.tick(500)
    conversation.start(0, 1, 2)
    conversation.tick(500)
    assert [conversation.partition(number).leader for number in range(3)] == [0, 1, 2]
    assert [conversation.partition(number).leader_epoch for number in range(3)] == epochs
    assert {frozenset(conversation.partition(number).isr) for number in range(3)} == {frozenset({0, 1, 2})}


def test_leader_that_never_registers_is_replaced_after_a_session() -> None:
    """Its partitions would wait for ever: a broker that was never there has no session that could expire."""
    conversation = restored_conversation()
    conversation.tick(500)
    conversation.start(0, 1)
    for _ in range(SESSION_MS // 500):
        conversation.heartbeat(0)
        conversation.heartbeat(1)
        conversation.tick(500)
    absent = conversation.partition(2)
    assert absent.leader in (0, 1) and set(absent.isr) == {0, 1}
    assert set(conversation.partition(0).isr) == {0, 1}
