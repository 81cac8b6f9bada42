# Long because each story of the balancer is told with the same cluster.
"""Healing and balancing by the controller: brokers that come and go, and administrators who know better."""

from collections import Counter
from datetime import timedelta
from functools import reduce
from typing import Any

import pytest
from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

from sparklog.driver.controller.machine.balancing.copy_slots import COPIES_PER_BROKER, OVERDUE_MS
from sparklog.driver.controller.machine.balancing.disks import DiskVolume, MeasuredDisks
from sparklog.driver.controller.machine.balancing.leader_traffic import MeasuredTraffic, Rates
from sparklog.driver.controller.machine.balancing.left_alone import LEFT_ALONE_MS
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.metadata.schemas import ConfigRecord, LeaderRecoveryState, ResourceType
from sparklog.protocol.types import TopicPartition
from tests.unit.driver.controller.conversation import Conversation, creatable, registration

REPLACE_AFTER_MS = 10_000
RACKS = {broker_id: f"rack-{broker_id % 3}" for broker_id in range(9)}


class Cluster(Conversation):
    """Brokers that send heartbeats, and copy what they are assigned when a test lets them."""

    def __init__(self, *broker_ids: int, **config: str) -> None:
        super().__init__(**{"sparklog_replace_after_ms": str(REPLACE_AFTER_MS), **config})
        self.alive: list[int] = []
        self.stuck: set[int] = set()
        """Brokers whose replicas are not in sync, unless they lead."""
        self.add(*broker_ids)

    def add(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.say(registration(broker_id, rack=RACKS[broker_id], incarnation=self.now_ms + 1))
            self.heartbeat(broker_id)
            self.alive.append(broker_id)

    def lose(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.take(self.controller.broker_gone(broker_id, self.epoch(broker_id)))
            self.alive.remove(broker_id)

    def wait(self, duration_ms: int, *, copies: bool = True) -> int:
        """Let time pass, in which replicas get into sync if `copies`; return the number of records."""
        count = 0
        for _ in range(duration_ms // 1_000):
            for broker_id in self.alive:
                self.heartbeat(broker_id)
            count += len(self.tick(500)) + len(self.tick(500))
            if copies:
                count += self.copy()
        return count

    def copy(self) -> int:
        """Let the new replicas of all partitions join the ISR; return the number of records."""
        count = 0
        for topic in self.image.topics.by_id.values():
            for number, partition in topic.partitions.items():
                in_sync = {*self.alive} - self.stuck | {partition.leader}
                isr = tuple(each for each in partition.replicas if each in in_sync)
                if partition.leader is not None and set(isr) != set(partition.isr):
                    count += self._propose(topic.topic_id, number, partition, isr)
        return count

    def _propose(self, topic_id: Any, number: int, partition: PartitionRegistration, isr: Any) -> int:
        assert partition.leader is not None
        proposal = PartitionData(
            partition_index=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            leader_recovery_state=int(LeaderRecoveryState.RECOVERED),
            new_isr_with_epochs=tuple(
                BrokerState(broker_id=member, broker_epoch=self.epoch(member)) for member in isr
            ),
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=self.epoch(partition.leader),
            topics=(TopicData(topic_id=topic_id, partitions=(proposal,)),),
        )
        return len(self.say(request).records)

    def reassign(self, target: tuple[int, ...] | None, number: int = 0) -> None:
        asked = ReassignablePartition(partition_index=number, replicas=target)
        topics = (ReassignableTopic(name="t", partitions=(asked,)),)
        self.say(AlterPartitionReassignmentsRequest(timeout=timedelta(seconds=1), topics=topics))

    def configure(self, name: str, value: str) -> None:
        record = ConfigRecord(
            resource_type=int(ResourceType.BROKER), resource_name="", name=name, value=value
        )
        self.controller.replay([record], self.image.end_offset, 1)

    @property
    def partitions(self) -> list[PartitionRegistration]:
        return [each for topic in self.image.topics.by_id.values() for each in topic.partitions.values()]

    @property
    def held(self) -> dict[int, int]:
        """The number of replicas of each broker that has any."""
        return dict(Counter(each for partition in self.partitions for each in partition.replicas))

    @property
    def led(self) -> dict[int, int]:
        return dict(Counter(each.leader for each in self.partitions if each.leader is not None))

    @property
    def moving(self) -> int:
        return sum(partition.is_reassigning for partition in self.partitions)

    @property
    def is_whole(self) -> bool:
        """Whether every partition has three replicas, all in sync, in three racks."""
        return all(
            len(each.isr) == 3 and len({RACKS[broker_id] for broker_id in each.replicas}) == 3
            for each in self.partitions
        )


class MeasuredCluster(Cluster):
    """Brokers with disks of 10,000 bytes, which report them every second."""

    def __init__(self, *broker_ids: int, **config: str) -> None:
        self.sizes: dict[int, int] = {}
        """Of the replicas of each partition of topic t, if not 10 bytes."""
        self.rates: dict[int, Rates] = {}
        """Of each partition of topic t, if it has traffic."""
        self.silent: set[int] = set()
        self._deletions: dict[tuple[int, int], int] = {}
        """The times at which the files of brokers' former replicas go."""
        self._held: set[tuple[int, int]] = set()
        delay = {"log_segment_delete_delay_ms": "5000"}
        super().__init__(*broker_ids, **{"sparklog_balance_enable": "always", **delay, **config})

    def wait(self, duration_ms: int, *, copies: bool = True) -> int:
        count = 0
        for _ in range(duration_ms // 1_000):
            self.measure()
            count += super().wait(1_000, copies=copies)
        return count

    def measure(self) -> None:
        held = {
            (each, number) for number, partition in enumerate(self.partitions) for each in partition.replicas
        }
        self._deletions |= dict.fromkeys(self._held - held, self.now_ms + 5000)
        self._held = held
        # A broker that is away deletes what it has lost when it is back.
        away = [removed for removed in self._deletions if removed[0] not in self.alive]
        self._deletions |= dict.fromkeys(away, self.now_ms + 5000)
        kept = held | {removed for removed, until_ms in self._deletions.items() if self.now_ms < until_ms}
        for broker_id in set(self.alive) - self.silent:
            sizes = {number: self.sizes.get(number, 10) for each, number in kept if each == broker_id}
            used = sum(sizes.values())
            volumes = {broker_id: DiskVolume(used, 10_000 - used)}
            listed = {TopicPartition("t", number): size for number, size in sizes.items()}
            self.controller.disks_reported(broker_id, MeasuredDisks(volumes, listed, self.now_ms))
            rates = {
                TopicPartition("t", number): self.rates[number]
                for number, partition in enumerate(self.partitions)
                if number in self.rates and partition.leader == broker_id
            }
            whole = reduce(Rates.plus, rates.values(), Rates(0, 0))
            self.controller.traffic_reported(broker_id, MeasuredTraffic(whole, rates, self.now_ms))

    def traffic(self) -> list[int]:
        """Return the bytes in of each broker's leaders, in MiB per second."""
        return [
            sum(
                rates.bytes_in >> 20
                for number, rates in self.rates.items()
                if self.partitions[number].leader == broker_id
            )
            for broker_id in self.alive
        ]

    def used(self) -> list[int]:
        """Return the bytes on each broker's disks once nothing moves."""
        assert self.moving == 0
        return [
            sum(
                self.sizes.get(number, 10)
                for number, partition in enumerate(self.partitions)
                if broker_id in partition.replicas
            )
            for broker_id in self.alive
        ]


@pytest.fixture
def cluster() -> Cluster:
    """Six brokers in three racks, and thirty partitions of two topics."""
    cluster = Cluster(0, 1, 2, 3, 4, 5)
    cluster.create(creatable("t", 18, 3), creatable("u", 12, 3))
    return cluster


def test_broker_away_for_too_long_has_its_replicas_placed_in_its_rack(cluster: Cluster) -> None:
    """Without it a second failure a week later finds partitions with one replica."""
    cluster.lose(4)
    cluster.wait(REPLACE_AFTER_MS - 2_000)
    assert cluster.moving == 0
    assert not cluster.is_whole
    cluster.wait(30_000)
    assert cluster.is_whole
    assert 4 not in cluster.held
    assert cluster.held[1] == 30


def test_broker_back_from_its_loss_shares_what_it_still_has_with_brokers_added_meanwhile() -> None:
    """Nothing else would begin it: the others were added before, and it has more than its share."""
    cluster = Cluster(0, 1, 2)
    cluster.create(creatable("t", assignments={number: (number % 3,) for number in range(18)}))
    epoch = cluster.epoch(2)
    cluster.lose(2)
    cluster.wait(REPLACE_AFTER_MS + 2_000)
    cluster.add(3, 4, 5)
    cluster.wait(30_000)
    assert cluster.held[2] == 6, "its only replicas"
    assert sum(cluster.held.values()) - cluster.held[2] == 12
    assert len(cluster.held) == 6
    cluster.say(registration(2, rack=RACKS[2], incarnation=99, previous_broker_epoch=epoch))
    cluster.alive.append(2)
    cluster.wait(30_000)
    assert cluster.held == dict.fromkeys(range(6), 3)


def test_broker_back_in_time_goes_on_with_its_replicas(cluster: Cluster) -> None:
    """A restart must not copy a terabyte."""
    before = [partition.replicas for partition in cluster.partitions]
    for _ in range(3):
        cluster.lose(4)
        cluster.wait(REPLACE_AFTER_MS - 2_000)
        cluster.add(4)
        cluster.wait(4_000)
    assert [partition.replicas for partition in cluster.partitions] == before
    assert cluster.is_whole


def test_broker_back_too_late_gets_its_share_again(cluster: Cluster) -> None:
    """It is there and has nothing: as if it was added."""
    cluster.lose(4)
    cluster.wait(60_000)
    assert cluster.held[1] == 30
    cluster.add(4)
    cluster.wait(60_000)
    assert cluster.is_whole
    assert (cluster.held[1], cluster.held[4]) == (15, 15)
    assert max(cluster.led.values()) - min(cluster.led.values()) <= 2


def test_whole_rack_lost_places_replicas_in_those_that_are_left(cluster: Cluster) -> None:
    """Three replicas in two racks are more than two; with the rack they part again."""
    cluster.lose(1, 4)
    cluster.wait(60_000)
    assert {len(partition.isr) for partition in cluster.partitions} == {3}
    assert set(cluster.held) == {0, 2, 3, 5}
    cluster.add(1, 4)
    cluster.wait(60_000)
    assert cluster.is_whole


def test_brokers_lost_that_cannot_be_spared_leave_partitions_as_they_are() -> None:
    """Two brokers hold no three replicas: nothing is taken away, and nothing begins that cannot end."""
    cluster = Cluster(0, 1, 2)
    cluster.create(creatable("t", 3, 3))
    cluster.lose(2)
    cluster.wait(30_000)
    assert {len(partition.replicas) for partition in cluster.partitions} == {3}
    assert cluster.moving == 0
    cluster.add(5)
    cluster.wait(10_000)
    assert cluster.is_whole


def test_added_brokers_get_their_share_a_few_partitions_at_a_time(cluster: Cluster) -> None:
    """All at once would take the network from clients."""
    cluster.add(6, 7, 8)
    cluster.wait(3_000, copies=False)
    assert cluster.moving == 3 * COPIES_PER_BROKER
    cluster.wait(60_000)
    assert cluster.is_whole
    assert set(cluster.held.values()) == {10}
    assert max(cluster.led.values()) - min(cluster.led.values()) <= 2


def test_balanced_cluster_moves_nothing_for_hours(cluster: Cluster) -> None:
    """Moves that bring moves about would never let the disks rest."""
    cluster.configure("sparklog.balance.enable", "always")
    cluster.add(6, 7)
    cluster.wait(60_000)
    cluster.lose(3)
    cluster.wait(60_000)
    assert cluster.wait(LEFT_ALONE_MS * 2) == 0


def test_uneven_cluster_is_balanced_only_if_that_is_wanted_always() -> None:
    """An administrator who put partitions somewhere had a reason."""
    cluster = Cluster(0, 1, 2, 3, 4, 5)
    cluster.wait(2_000)
    cluster.create(creatable("t", assignments=dict.fromkeys(range(12), (0, 1, 2))))
    cluster.wait(120_000)
    assert cluster.held == {0: 12, 1: 12, 2: 12}
    cluster.configure("sparklog.balance.enable", "always")
    cluster.wait(30_000)
    assert set(cluster.held.values()) == {6}
    assert cluster.is_whole
    assert max(cluster.led.values()) - min(cluster.led.values()) <= 2


def test_restart_of_a_broker_with_few_replicas_moves_nothing() -> None:
    """An administrator may keep a broker nearly empty; it must not be filled by its next restart."""
    cluster = Cluster(0, 1, 2, 3)
    cluster.wait(2_000)
    cluster.create(creatable("t", assignments=dict.fromkeys(range(12), (0, 1, 2))))
    cluster.lose(3)
    cluster.wait(3_000)
    cluster.add(3)
    cluster.wait(30_000)
    assert cluster.held == {0: 12, 1: 12, 2: 12}


@pytest.mark.parametrize(
    ("key", "off", "on"),
    [("sparklog.balance.enable", "false", "true"), ("sparklog.read.only", "true", "false")],
)
def test_balance_that_is_off_or_of_a_read_only_cluster_moves_nothing(
    cluster: Cluster, key: str, off: str, on: str
) -> None:
    """An administrator does it, or the cluster is about to stop."""
    cluster.configure(key, off)
    cluster.lose(4)
    cluster.add(6)
    cluster.wait(60_000)
    assert cluster.moving == 0
    assert 6 not in cluster.held
    cluster.configure(key, on)
    cluster.wait(60_000)
    assert cluster.is_whole
    assert 4 not in cluster.held


def test_reassignment_of_an_administrator_is_left_alone(cluster: Cluster) -> None:
    """Two hands at one partition move it for ever."""
    cluster.reassign((3, 4, 5))
    wanted = cluster.partition().replicas
    cluster.lose(4)
    cluster.wait(REPLACE_AFTER_MS + 5_000, copies=False)
    assert cluster.partition().replicas == wanted
    assert cluster.moving > 1, "other partitions of the lost broker move"


def test_partition_that_an_administrator_has_placed_is_not_moved_for_balance() -> None:
    """It would be moved back as soon as the reassignment is complete."""
    cluster = Cluster(0, 1, 2, 3, 4, 5, sparklog_balance_enable="always")
    cluster.create(creatable("t", assignments=dict.fromkeys(range(12), (3, 1, 2))))
    for number in range(12):
        cluster.reassign((0, 1, 2), number)
    cluster.wait(120_000)
    assert cluster.held == {0: 12, 1: 12, 2: 12}
    cluster.wait(LEFT_ALONE_MS + 400_000)
    assert set(cluster.held.values()) == {6}


def test_cancelled_move_is_not_begun_again_at_once(cluster: Cluster) -> None:
    """The cancellation would have to be repeated every second."""
    before = [set(partition.replicas) for partition in cluster.partitions]
    cluster.add(6)
    cluster.wait(3_000, copies=False)
    moving = [n for n in range(18) if cluster.partition(n).is_reassigning]
    assert moving
    for number in moving:
        cluster.reassign(None, number)
    cluster.wait(60_000)
    assert [set(cluster.partition(n).replicas) for n in moving] == [before[n] for n in moving]
    assert cluster.held[6] > 0, "others are moved in their place"


def test_move_to_a_broker_that_is_lost_goes_elsewhere(cluster: Cluster) -> None:
    """It would never end, and keep the partition from every other move."""
    cluster.lose(4)
    cluster.add(7)
    cluster.wait(REPLACE_AFTER_MS + 3_000, copies=False)
    assert cluster.held[7] > 0
    cluster.lose(7)
    cluster.wait(60_000)
    assert cluster.is_whole
    assert set(cluster.held) == {0, 1, 2, 3, 5}


def test_move_of_a_deleted_topic_ends(cluster: Cluster) -> None:
    """Its place among the copies at a time would be lost."""
    cluster.add(6)
    cluster.wait(3_000, copies=False)
    assert cluster.moving == COPIES_PER_BROKER
    topics = (DeleteTopicState(name="t", topic_id=None), DeleteTopicState(name="u", topic_id=None))
    cluster.say(DeleteTopicsRequest(topics=topics, timeout=timedelta(seconds=1)))
    cluster.create(creatable("v", assignments=dict.fromkeys(range(12), (0, 1, 2))))
    cluster.wait(60_000)
    assert cluster.held[6] > 1


def test_partition_without_a_leader_waits_for_one() -> None:
    """There is nothing to copy from, and the lost broker's replica may be the last."""
    cluster = Cluster(0, 1, 2, 3)
    cluster.create(creatable("t", assignments={0: (0, 1)}))
    cluster.lose(1)
    cluster.lose(0)
    cluster.wait(REPLACE_AFTER_MS + 5_000)
    assert (cluster.partition().leader, cluster.partition().replicas) == (None, (0, 1))
    cluster.add(0)
    cluster.wait(5_000)
    assert cluster.partition().leader == 0
    assert 1 not in cluster.partition().replicas
    assert len(cluster.partition().isr) == 2


def test_pause_of_the_driver_is_no_absence_of_a_broker(cluster: Cluster) -> None:
    """While the driver was suspended the broker had no controller to register with."""
    cluster.lose(4)
    cluster.wait(3_000)
    cluster.now_ms += 10 * REPLACE_AFTER_MS
    cluster.wait(2_000)
    cluster.add(4)
    cluster.wait(5_000)
    assert cluster.held[4] == 15
    assert cluster.is_whole


def test_driver_that_takes_over_counts_the_absence_from_its_beginning(cluster: Cluster) -> None:
    """It does not know when the broker went, and the broker may be about to find the new driver."""
    cluster.lose(4)
    cluster.wait(REPLACE_AFTER_MS - 2_000)
    cluster.take_over()
    cluster.wait(REPLACE_AFTER_MS - 2_000)
    assert cluster.moving == 0
    cluster.wait(30_000)
    assert cluster.is_whole


def test_driver_that_takes_over_gives_its_share_to_an_empty_broker(cluster: Cluster) -> None:
    """The broker may have been added by this start of the application."""
    cluster.add(6)
    cluster.take_over()
    cluster.wait(60_000)
    assert cluster.held[6] > 5
    assert cluster.is_whole


def test_driver_that_takes_over_goes_on_with_moves(cluster: Cluster) -> None:
    """A move to a broker that is lost meanwhile would never end, and each driver would add as many more."""
    cluster.add(6)
    cluster.wait(3_000, copies=False)
    assert cluster.moving == COPIES_PER_BROKER
    cluster.take_over()
    cluster.wait(3_000, copies=False)
    assert cluster.moving == COPIES_PER_BROKER
    cluster.lose(6)
    cluster.wait(60_000)
    assert cluster.is_whole
    assert 6 not in cluster.held


def test_move_off_a_surplus_broker_to_a_lost_one_goes_elsewhere(cluster: Cluster) -> None:
    """It would never be complete, and the cluster never smaller."""
    cluster.add(6, 7, 8)
    cluster.wait(60_000)
    cluster.configure("sparklog.brokers.per.rack", "2")
    cluster.wait(1_000, copies=False)
    moves = [partition for partition in cluster.partitions if partition.is_reassigning]
    lost = moves[0].adding_replicas[0]
    cluster.lose(lost)
    cluster.wait(60_000)
    assert cluster.is_whole
    assert not {6, 7, 8, lost} & set(cluster.held)


def test_move_to_a_broker_that_becomes_surplus_is_no_cancellation_by_an_administrator(
    cluster: Cluster,
) -> None:
    """Its partition is healed like others, not an hour later."""
    cluster.add(6, 7, 8)
    cluster.wait(3_000, copies=False)
    assert cluster.moving > 0
    cluster.configure("sparklog.brokers.per.rack", "2")
    cluster.wait(30_000)
    assert not {6, 7, 8} & set(cluster.held)
    cluster.lose(4)
    cluster.wait(60_000)
    assert cluster.is_whole
    assert 4 not in cluster.held


def test_brokers_that_stay_after_all_get_their_share_again(cluster: Cluster) -> None:
    """They are empty, and nothing else would ever fill them."""
    cluster.add(6, 7, 8)
    cluster.wait(60_000)
    cluster.configure("sparklog.brokers.per.rack", "2")
    cluster.wait(60_000)
    assert not {6, 7, 8} & set(cluster.held)
    cluster.configure("sparklog.brokers.per.rack", "3")
    cluster.wait(60_000)
    assert set(cluster.held.values()) == {10}


@pytest.mark.parametrize("is_new_driver", [True, False])
def test_placement_by_an_administrator_outlasts_a_driver_and_a_pause_of_balancing(
    is_new_driver: bool,
) -> None:
    """Brokers with few replicas were not added by that."""
    cluster = Cluster(0, 1, 2, 3, 4, 5)
    cluster.wait(2_000)
    placed: dict[int, tuple[int, ...]] = {**dict.fromkeys(range(12), (0, 1, 2)), 12: (3, 4, 5)}
    cluster.create(creatable("t", assignments=placed))
    if is_new_driver:
        cluster.take_over()
    else:
        cluster.configure("sparklog.balance.enable", "false")
        cluster.wait(2_000)
        cluster.configure("sparklog.balance.enable", "true")
    cluster.wait(60_000)
    assert cluster.held == {0: 12, 1: 12, 2: 12, 3: 1, 4: 1, 5: 1}


def test_partitions_of_an_away_broker_are_balanced_when_it_is_back(cluster: Cluster) -> None:
    """Balancing that ends early leaves an added broker with less than its share."""
    cluster.lose(0)
    cluster.add(6)
    cluster.wait(REPLACE_AFTER_MS - 3_000)
    cluster.add(0)
    cluster.wait(60_000)
    assert cluster.is_whole
    assert [cluster.held[each] for each in (0, 3, 6)] == [10, 10, 10]


def test_partitions_that_lost_their_leader_while_they_moved_stop_no_healing() -> None:
    """They may never be copied; the others would wait for them with two replicas for ever."""
    cluster = Cluster(0, 1, 2)
    cluster.create(creatable("t", assignments=dict.fromkeys(range(30), (0,))))
    cluster.create(creatable("u", assignments=dict.fromkeys(range(10), (0, 1, 2))))
    cluster.add(3)
    cluster.wait(3_000, copies=False)
    assert cluster.moving >= COPIES_PER_BROKER
    cluster.lose(0)
    cluster.wait(60_000)
    healed = cluster.image.topics.by_name["u"].partitions.values()
    assert {frozenset(partition.isr) for partition in healed} == {frozenset((1, 2, 3))}


def test_partition_with_more_lost_replicas_than_free_brokers_stays_as_it_is() -> None:
    """A move of one of them could never be complete, and would keep others from moving."""
    cluster = Cluster(0, 1, 2, 3)
    cluster.create(creatable("t", assignments=dict.fromkeys(range(8), (0, 1, 2))))
    cluster.create(creatable("u", assignments=dict.fromkeys(range(8), (0, 1))))
    cluster.lose(1, 2)
    cluster.wait(60_000)
    assert {cluster.partition(number).replicas for number in range(8)} == {(0, 1, 2)}
    healed = cluster.image.topics.by_name["u"].partitions.values()
    assert {frozenset(partition.isr) for partition in healed} == {frozenset((0, 3))}


def test_replica_out_of_sync_on_an_active_broker_stops_no_healing_of_others(cluster: Cluster) -> None:
    """Its partition's move cannot be complete, but all new replicas are copied."""
    cluster.lose(4)
    cluster.stuck = {0, 2, 3, 5}
    cluster.wait(60_000)
    assert not any(4 in partition.target_replicas for partition in cluster.partitions)


def test_partition_with_a_replica_out_of_sync_is_not_moved_for_balance(cluster: Cluster) -> None:
    """Its move could not be complete; it is found when the replica is back in sync."""
    cluster.wait(2_000)
    cluster.stuck = {2}
    cluster.wait(2_000)
    cluster.add(6)
    cluster.wait(60_000)
    assert cluster.moving == 0
    cluster.stuck.clear()
    cluster.wait(60_000)
    assert cluster.is_whole
    assert cluster.held[6] == 10


def test_broker_whose_copies_are_overdue_gets_no_further_replicas_and_holds_nothing_up(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory that cannot be written to would keep all of a lost broker's replicas waiting for ever."""
    cluster.add(7)
    cluster.wait(60_000)
    assert cluster.is_whole
    cluster.stuck = {7}
    cluster.lose(4)
    cluster.wait(REPLACE_AFTER_MS + 5_000)
    begun = sum(7 in partition.adding_replicas for partition in cluster.partitions)
    assert 0 < begun <= COPIES_PER_BROKER
    for _ in range(2):
        cluster.wait(OVERDUE_MS // 2)
    assert sum(7 in partition.adding_replicas for partition in cluster.partitions) == begun
    assert not any(4 in partition.target_replicas for partition in cluster.partitions)
    assert "these get no further replicas before they are in sync" in caplog.text
    cluster.stuck.clear()
    cluster.wait(60_000)
    assert cluster.is_whole


def skewed_cluster(**config: str) -> MeasuredCluster:
    """Return a cluster with equal numbers of replicas, of which brokers 0 to 2 have all large ones."""
    cluster = MeasuredCluster(0, 1, 2, 3, 4, 5, **config)
    turns = [(0, 1, 2), (1, 2, 0), (2, 0, 1)] * 4 + [(3, 4, 5), (4, 5, 3), (5, 3, 4)] * 4
    cluster.create(creatable("t", assignments=dict(enumerate(turns))))
    cluster.sizes = dict.fromkeys(range(6), 1_000)
    return cluster


def test_full_disks_give_replicas_to_emptier_ones_and_then_rest() -> None:
    """Numbers of replicas say nothing of a topic a hundred times as large as another."""
    cluster = skewed_cluster()
    cluster.wait(400_000)
    assert max(cluster.used()) - min(cluster.used()) <= 2_000
    assert max(cluster.held.values()) - min(cluster.held.values()) <= 3
    assert cluster.is_whole
    assert cluster.wait(LEFT_ALONE_MS * 2) == 0


def test_full_disks_of_a_broker_that_does_not_report_stay_as_they_are() -> None:
    """A figure that is missing is no zero."""
    cluster = skewed_cluster()
    cluster.silent = {5}
    assert cluster.wait(1_000_000) == 0


def test_full_disks_are_balanced_only_if_that_is_wanted_always() -> None:
    """As uneven numbers are: nothing was added or lost."""
    cluster = skewed_cluster(sparklog_balance_enable="true")
    assert cluster.wait(1_000_000) == 0


def test_added_broker_gets_bytes_as_well_as_replicas() -> None:
    """Its share of the replicas may all be small ones."""
    cluster = skewed_cluster(sparklog_balance_enable="true")
    cluster.sizes = dict.fromkeys(range(6), 2_000) | dict.fromkeys(range(6, 12), 1_500)
    cluster.wait(30_000)
    cluster.add(6, 7, 8)
    cluster.wait(600_000)
    assert max(cluster.used()) - min(cluster.used()) <= 3_000
    assert cluster.is_whole


def test_broker_that_comes_back_with_former_replicas_on_full_disks_gets_its_share() -> None:
    """Its disks are as full as when it was lost until it has deleted what others have meanwhile."""
    cluster = skewed_cluster(sparklog_balance_enable="true")
    cluster.wait(30_000)
    cluster.lose(0)
    cluster.wait(300_000)
    assert 0 not in cluster.held
    cluster.add(0)
    cluster.wait(3_000)
    assert any(0 in partition.target_replicas for partition in cluster.partitions)
    cluster.wait(300_000)
    assert max(cluster.used()) - min(cluster.used()) <= 2_000
    assert cluster.wait(LEFT_ALONE_MS) == 0


def busy_cluster(**config: str) -> MeasuredCluster:
    """Return a cluster in which brokers 0, 1 and 2 lead all partitions with traffic, and others as many."""
    cluster = MeasuredCluster(0, 1, 2, 3, 4, 5, **config)
    turns = [(0, 4, 5), (1, 5, 3), (2, 3, 4)] * 4 + [(3, 1, 2), (4, 2, 0), (5, 0, 1)] * 4
    cluster.create(creatable("t", assignments=dict(enumerate(turns))))
    cluster.rates = dict.fromkeys(range(12), Rates(3 << 20, 0))
    return cluster


def test_busy_leaders_give_leaderships_away_without_a_copy_and_then_rest() -> None:
    """Numbers of leaders say nothing of a partition that everything is written to."""
    cluster = busy_cluster()
    held = cluster.held
    cluster.wait(400_000)
    assert sorted(cluster.traffic()) == [3, 6, 6, 6, 6, 9], "it was 12 at three brokers"
    assert (cluster.held, cluster.led) == (held, dict.fromkeys(range(6), 4))
    assert cluster.wait(1_000_000) == 0


def test_loads_that_change_long_after_everything_else_are_balanced() -> None:
    """Logs grow and producers come while no partition and no broker changes."""
    cluster = busy_cluster()
    cluster.rates, rates = {}, cluster.rates
    assert cluster.wait(1_000_000) == 0
    cluster.rates = rates
    cluster.wait(400_000)
    assert max(cluster.traffic()) == 9
    cluster.sizes = dict.fromkeys((0, 3, 6, 9), 2_000)
    cluster.wait(800_000)
    assert max(cluster.used()) - min(cluster.used()) <= 4_000


def test_loads_of_an_added_broker_that_are_known_late_are_balanced_then() -> None:
    """It reports no traffic in its first minutes, and no use of disks while it copies."""
    cluster = busy_cluster(sparklog_balance_enable="true")
    cluster.wait(30_000)
    cluster.silent = {6}
    cluster.add(6)
    cluster.wait(100_000)
    assert cluster.moving == 0
    assert cluster.held[6] > 5
    assert sorted(cluster.traffic()) == [0, 0, 0, 0, 12, 12, 12]
    cluster.silent.clear()
    cluster.wait(400_000)
    assert sorted(cluster.traffic()) == [0, 3, 3, 6, 6, 6, 12], (
        "brokers 4 and 5 can lead no more for broker 6"
    )


def test_busy_leaders_beside_a_broker_without_figures_stay_as_they_are() -> None:
    """It may be the busiest of all."""
    cluster = busy_cluster()
    cluster.silent = {5}
    assert cluster.wait(1_000_000) == 0
