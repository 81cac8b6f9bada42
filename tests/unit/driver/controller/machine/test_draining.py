"""A smaller cluster: replicas leave the surplus brokers, which are forgotten when they have ended."""

from collections import Counter
from collections.abc import Iterable

import pytest
from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.request import AlterConfigsResource as AlterConfigs
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from sparklog.driver.controller.machine.balancing.copy_slots import COPIES_PER_BROKER
from sparklog.driver.controller.machine.draining import AWAY_MS
from sparklog.driver.controller.machine.recent_leaders import REST_MS
from sparklog.node.config.keys.controller_keys import RACKS_KEY, READ_ONLY_KEY
from sparklog.node.config.size_request import size_request
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable

_BROKER = 4
_CHECK_MS = 1_000
_COPIES = 3 * COPIES_PER_BROKER
"""Those of the three brokers that stay."""
_SET, _DELETE = 0, 1


@pytest.fixture
def cluster() -> Conversation:
    """Five racks of one broker, whose sessions outlive the test."""
    return Conversation(broker_session_timeout_ms="600000").start(0, 1, 2, 3, 4)


def resize(cluster: Conversation, racks: int | None) -> tuple[ErrorCode, str | None]:
    """Change the number of racks as an admin client does; None removes the configuration."""
    config = AlterableConfig(
        name=RACKS_KEY,
        config_operation=_DELETE if racks is None else _SET,
        value=None if racks is None else str(racks),
    )
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name="", configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (response,) = cluster.say(request).reply.responses
    return response.error_code, response.error_message


def test_growth_beyond_the_maximum_of_brokers_is_refused_by_its_key() -> None:
    """Each broker has a thread in the driver: a slip of the hand would start hundreds."""
    cluster = Conversation(sparklog_max_brokers="4").start(0, 1, 2)
    assert resize(cluster, 4) == (ErrorCode.none, None)
    code, message = resize(cluster, 5)
    assert code is ErrorCode.invalid_config
    assert message is not None
    assert "5 racks of 1 broker would be 5 brokers, and sparklog.max.brokers is 4" in message


def partitions(cluster: Conversation) -> list[PartitionRegistration]:
    found = cluster.image.topics.by_name["t"].partitions
    return [found[number] for number in sorted(found)]


def moving(cluster: Conversation) -> int:
    return sum(partition.is_reassigning for partition in partitions(cluster))


def catch_up(cluster: Conversation, *broker_ids: int) -> None:
    """Let new replicas, on these brokers or on all, into the ISR by proposals of the partitions' leaders."""
    for number, partition in enumerate(partitions(cluster)):
        added = partition.adding_replicas
        if added and partition.leader is not None and (not broker_ids or set(added) <= {*broker_ids}):
            brokers = cluster.image.brokers
            cluster.propose(
                partition.leader,
                tuple(each for each in partition.replicas if not brokers[each].fenced),
                partition_index=number,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
            )


def holders(found: Iterable[PartitionRegistration]) -> set[int]:
    return {each for partition in found for each in partition.replicas}


def test_smaller_cluster_moves_all_replicas_off_the_surplus_brokers_a_few_at_a_time(
    cluster: Conversation,
) -> None:
    """Leaders read each moving log once more: without a bound the drain would starve producers."""
    count = 3 * _COPIES
    cluster.create(creatable("t", count, 3))
    assert resize(cluster, 3) == (ErrorCode.none, None)
    rounds = 0
    while any(cluster.controller.surplus.values()):
        cluster.tick(_CHECK_MS)
        assert moving(cluster) <= _COPIES
        assert all(len(partition.isr) == 3 for partition in partitions(cluster)), "nothing is removed first"
        catch_up(cluster)
        rounds += 1
        assert rounds < 20
    assert holders(partitions(cluster)) == {0, 1, 2}
    led = [partition.replicas[0] for partition in partitions(cluster)]
    assert all(led.count(broker_id) > count // 6 for broker_id in (0, 1, 2)), "leaders stay spread"
    assert {partition.leader for partition in partitions(cluster)} <= {0, 1, 2}


def test_surplus_broker_gets_no_replica_of_a_new_topic(cluster: Conversation) -> None:
    """A drain would otherwise never end beside users who create topics."""
    resize(cluster, 3)
    cluster.create(creatable("t", 12, 3))
    assert holders(partitions(cluster)) == {0, 1, 2}


def test_surplus_broker_gets_no_replica_by_a_named_assignment(cluster: Conversation) -> None:
    """A tool that knows nothing of the smaller size would fill the broker that is being drained."""
    cluster.create(creatable("t", assignments={0: (4, 0)}))
    resize(cluster, 3)
    (created,) = cluster.create(creatable("u", assignments={0: (3, 0)})).reply.topics
    assert created.error_code is ErrorCode.invalid_replica_assignment
    assert "broker 3, which leaves the cluster" in created.error_message

    def reassign(*target: int) -> ErrorCode:
        partition = ReassignablePartition(partition_index=0, replicas=target)
        topic = ReassignableTopic(name="t", partitions=(partition,))
        request = AlterPartitionReassignmentsRequest(topics=(topic,))
        return ErrorCode(cluster.say(request).reply.responses[0].partitions[0].error_code)

    assert reassign(3, 0) is ErrorCode.invalid_replica_assignment
    assert reassign(4, 1) is ErrorCode.none, "it has that replica, which is drained later"


def test_size_without_enough_brokers_that_serve_is_refused(cluster: Conversation) -> None:
    """The drain would wait for a broker that may never come."""
    cluster.create(creatable("t", assignments={0: (4, 0, 1)}))
    cluster.take(cluster.controller.broker_gone(2, cluster.epoch(2)))
    code, message = resize(cluster, 3)
    assert code is ErrorCode.invalid_config
    assert message is not None
    assert "too few for t-0 now: its replicas are on brokers [0, 1, 4], and [2]" in message
    assert resize(cluster, 4) == (ErrorCode.none, None), "broker 3 is free"


def test_size_below_a_topics_replicas_is_refused_with_topic_and_numbers(cluster: Conversation) -> None:
    """The drain could not end, or the topic would lose replicas that its owner counts on."""
    cluster.create(creatable("orders", 2, 3, configs={"min.insync.replicas": "2"}))
    code, message = resize(cluster, 2)
    assert code is ErrorCode.invalid_config
    assert message is not None
    assert "2 racks of 1 broker would be too few for topic orders" in message
    assert "3 replicas (min.insync.replicas is 2), and brokers would be 2" in message
    assert cluster.controller.surplus == {}


def test_size_below_a_topics_replicas_is_refused_also_where_the_last_broker_is_forgotten(
    cluster: Conversation,
) -> None:
    """The topic keeps its replica on a broker that is unregistered, which nothing could replace any more."""
    cluster.say(size_request(5, 1))
    cluster.create(creatable("orders", assignments={0: (0, 1, 2, 3, 4)}))
    cluster.take(cluster.controller.broker_gone(4, cluster.epoch(4)))
    cluster.say(UnregisterBrokerRequest(broker_id=4))
    code, message = resize(cluster, 4)
    assert code is ErrorCode.invalid_config
    assert message is not None
    assert "4 racks of 1 broker would be too few for topic orders" in message


def test_size_of_a_growth_without_brokers_is_given_up(cluster: Conversation) -> None:
    """Nothing is drained for it, whatever the topics have."""
    cluster.create(creatable("orders", assignments={0: (0, 1, 2, 3, 4)}))
    assert resize(cluster, 7) == (ErrorCode.none, None)
    assert resize(cluster, 5) == (ErrorCode.none, None)


def test_size_with_two_racks_of_one_name_is_refused() -> None:
    """The driver would start the brokers of one of them, and the controller drain them, again and again."""
    cluster = Conversation(sparklog_rack_names="rack-3,east")
    cluster.start(0, rack="rack-3").start(1, rack="east")
    code, message = resize(cluster, 4)
    assert code is ErrorCode.invalid_config
    assert message is not None
    assert "sparklog.rack.names" in message and "two racks of the cluster have the same name" in message
    assert resize(cluster, 3) == (ErrorCode.none, None)


def test_size_is_not_removed(cluster: Conversation) -> None:
    """Without one, the controller would have no limit while the driver wanted the size of its start."""
    resize(cluster, 3)
    code, message = resize(cluster, None)
    assert code is ErrorCode.invalid_config
    assert message == "sparklog.racks is the cluster's size: set another number, do not delete it"
    resource = AlterConfigs(resource_type=_BROKER, resource_name="", configs=())
    cluster.say(AlterConfigsRequest(resources=(resource,), validate_only=False))
    assert cluster.image.broker_configs(None)[RACKS_KEY] == "3", (
        "AlterConfigs replaces all that it does not name"
    )


def test_size_that_is_raised_again_cancels_the_moves_that_are_under_way(cluster: Conversation) -> None:
    """Giving a drain up leaves a full member of the cluster, and no copies that run on for nothing."""
    cluster.create(creatable("t", 2, assignments=None, replication_factor=3))
    before = [partition.replicas for partition in partitions(cluster)]
    cluster.create(creatable("u", assignments={0: (4, 3, 0)}))
    resize(cluster, 3)
    cluster.tick(_CHECK_MS)
    assert cluster.image.topics.by_name["u"].partitions[0].is_reassigning
    resize(cluster, 5)
    cluster.tick(_CHECK_MS)
    assert cluster.controller.surplus == {}
    assert sorted(cluster.image.topics.by_name["u"].partitions[0].replicas) == [0, 3, 4]
    assert [sorted(each.replicas) for each in partitions(cluster)] == [sorted(each) for each in before]
    assert not cluster.image.topics.by_name["u"].partitions[0].is_reassigning


def test_size_that_is_raised_again_takes_no_copy_away_that_is_in_sync_in_place_of_an_original(
    cluster: Conversation,
) -> None:
    """Records acknowledged under two replicas in sync would be on one broker."""
    cluster.create(creatable("t", assignments={0: (0, 3, 4)}))
    resize(cluster, 3)
    cluster.tick(_CHECK_MS)
    assert set(cluster.partition().adding_replicas) == {1, 2}
    cluster.take(cluster.controller.broker_gone(3, cluster.epoch(3)))
    cluster.take(cluster.controller.broker_gone(4, cluster.epoch(4)))
    partition = cluster.partition()
    cluster.propose(0, (0, 1), leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch)
    resize(cluster, 5)
    cluster.tick(_CHECK_MS)
    assert set(cluster.partition().isr) == {0, 1}


def test_drain_parts_racks_although_the_broker_of_a_replica_that_stays_is_away_for_a_moment() -> None:
    """It is back soon, and nothing would part the two replicas of its rack afterwards."""
    cluster = Conversation(broker_session_timeout_ms="600000").start(0, 1, 2, 3)
    cluster.start(1001, rack="rack-1").start(1002, rack="rack-2")
    cluster.create(creatable("t", assignments={0: (0, 1, 3)}), creatable("u", assignments={0: (2, 1002)}))
    resize(cluster, 3)
    cluster.take(cluster.controller.broker_gone(1, cluster.epoch(1)))
    cluster.tick(2 * REST_MS + _CHECK_MS)
    assert cluster.partition().adding_replicas in ((2,), (1002,))


def test_drain_whose_destination_is_lost_goes_to_another_broker_with_balancing_off() -> None:
    """The cluster could never become smaller."""
    cluster = Conversation(
        broker_session_timeout_ms="600000",
        sparklog_balance_enable="false",
        sparklog_replace_after_ms="10000",
    ).start(0, 1, 2, 3, 4)
    cluster.create(creatable("t", assignments={0: (0, 1, 4)}))
    resize(cluster, 4)
    cluster.tick(_CHECK_MS)
    (destination,) = cluster.partition().adding_replicas
    cluster.take(cluster.controller.broker_gone(destination, cluster.epoch(destination)))
    cluster.tick(20_000)
    cluster.tick(_CHECK_MS)
    assert set(cluster.partition().target_replicas) == {0, 1, 2, 3} - {destination}


def test_drained_broker_is_unregistered_once_it_has_ended_and_votes_no_more(cluster: Conversation) -> None:
    """A voter that is forgotten while it counts would leave the quorum with a vote that never comes."""
    resize(cluster, 4)
    cluster.tick()
    assert cluster.controller.surplus == {4: 0}
    assert cluster.controller.unregister_drained((), cluster.now_ms).records == [], "it still serves"
    cluster.take(cluster.controller.shut_down_broker(4, "the cluster becomes smaller"))
    while not cluster.heartbeat(4).reply.should_shut_down:
        for broker_id in range(4):
            cluster.heartbeat(broker_id)
    assert cluster.controller.unregister_drained((0, 4), cluster.now_ms).records == [], "it votes"
    cluster.take(cluster.controller.unregister_drained((0, 1, 2), cluster.now_ms))
    assert sorted(cluster.image.brokers) == [0, 1, 2, 3]
    assert cluster.controller.surplus == {}


def test_surplus_broker_without_a_session_is_unregistered_only_after_a_long_absence(
    cluster: Conversation,
) -> None:
    """One that was only late lost its registration, ended by that, and took its rack's job with it."""
    resize(cluster, 4)
    cluster.tick()
    cluster.take(cluster.controller.broker_gone(4, cluster.epoch(4)))
    assert cluster.image.brokers[4].fenced
    assert cluster.controller.unregister_drained((), cluster.now_ms).records == []
    assert cluster.controller.unregister_drained((), cluster.now_ms + AWAY_MS - 1).records == []
    assert cluster.controller.unregister_drained((), cluster.now_ms + AWAY_MS).records != []


def test_surplus_broker_without_a_session_is_unregistered_at_once_if_its_job_ends(
    cluster: Conversation,
) -> None:
    """It cannot be asked to shut down, and a change of the size waited a minute for it."""
    resize(cluster, 4)
    cluster.tick()
    cluster.take(cluster.controller.broker_gone(4, cluster.epoch(4)))
    cluster.take(cluster.controller.shut_down_broker(4, "it has no job"))
    assert cluster.controller.unregister_drained((4,), cluster.now_ms).records == [], "it votes"
    cluster.take(cluster.controller.unregister_drained((), cluster.now_ms))
    assert sorted(cluster.image.brokers) == [0, 1, 2, 3]


def test_surplus_broker_whose_job_ends_stays_registered_while_it_has_a_session(cluster: Conversation) -> None:
    """It comes to the end of its controlled shutdown by its heartbeats, which need the registration."""
    resize(cluster, 4)
    cluster.tick()
    cluster.take(cluster.controller.shut_down_broker(4, "the cluster becomes smaller"))
    assert cluster.controller.unregister_drained((), cluster.now_ms).records == []


def test_brokers_that_stay_may_start_again_only_while_all_of_them_are_in_sync() -> None:
    """A rack's job starts again without the others: a partition may have no other replica in sync."""
    cluster = Conversation(broker_session_timeout_ms="600000")
    for broker_id, rack in enumerate(("rack-0", "rack-1", "rack-0", "rack-1", "rack-2")):
        cluster.start(broker_id, rack=rack)
    cluster.say(size_request(2, 1))
    cluster.create(creatable("t", assignments={0: (0, 1)}))
    assert cluster.controller.emptied == {2, 3, 4}
    assert cluster.controller.is_in_sync
    cluster.take(cluster.controller.broker_gone(4, cluster.epoch(4)))
    assert cluster.controller.is_in_sync, "a broker that leaves is not missed"
    cluster.take(cluster.controller.broker_gone(0, cluster.epoch(0)))
    assert not cluster.controller.is_in_sync
    cluster.start(0, rack="rack-0")
    assert cluster.partition().isr == (1,)
    assert not cluster.controller.is_in_sync, "unfenced is not in sync"
    cluster.propose(
        1,
        (0, 1),
        leader_epoch=cluster.partition().leader_epoch,
        partition_epoch=cluster.partition().partition_epoch,
    )
    assert cluster.controller.is_in_sync
    assert cluster.controller.emptied == {2, 3, 4}
    cluster.say(size_request(3, 1))
    cluster.start(6, rack="rack-2")
    cluster.take(cluster.controller.broker_gone(4, cluster.epoch(4)))
    assert cluster.controller.surplus == {2: 0, 3: 0, 6: 0}
    assert cluster.controller.is_in_sync, "broker 4 has no replica: it may wait for an executor of the others"


def test_fenced_brokers_get_no_replica_from_a_drain(cluster: Conversation) -> None:
    """The copy would wait for a broker that may never come, while its place was needed elsewhere."""
    cluster.create(creatable("t", assignments={0: (4, 0)}))
    cluster.take(cluster.controller.broker_gone(1, cluster.epoch(1)))
    resize(cluster, 3)
    cluster.tick(_CHECK_MS)
    assert partitions(cluster)[0].target_replicas == (2, 0)


def test_racks_with_names_like_numbers_of_others_drain_none_that_stays() -> None:
    """The names are the cluster's own: `rack-3` may be the last of three racks."""
    names = ("rack-1", "rack-2", "rack-3")
    cluster = Conversation(broker_session_timeout_ms="600000", sparklog_rack_names=",".join(names))
    for broker_id, name in enumerate(names):
        cluster.start(broker_id, rack=name)
    resize(cluster, 3)
    assert cluster.controller.surplus == {}
    resize(cluster, 2)
    assert cluster.controller.surplus == {2: 0}


def test_drain_goes_on_beside_many_partitions_without_a_leader(cluster: Conversation) -> None:
    """Their moves would wait for a leader and, with all others behind them, for ever."""
    cluster.create(creatable("t", assignments=dict.fromkeys(range(_COPIES + 1), (3,))))
    cluster.create(creatable("u", assignments={0: (4, 0)}))
    cluster.take(cluster.controller.broker_gone(3, cluster.epoch(3)))
    resize(cluster, 3)
    cluster.tick(_CHECK_MS)
    assert cluster.partition(0, "u").target_replicas == (1, 0)
    assert moving(cluster) == 0


def test_moves_whose_target_goes_away_hold_no_place_of_others(cluster: Conversation) -> None:
    """They would end the drain until that broker came back."""
    count = 2 * COPIES_PER_BROKER + 1
    cluster.create(creatable("t", assignments=dict.fromkeys(range(count), (4, 0, 1))))
    resize(cluster, 4)
    cluster.tick(_CHECK_MS)
    assert moving(cluster) == count - 1
    cluster.take(cluster.controller.broker_gone(2, cluster.epoch(2)))
    catch_up(cluster, 3)
    assert moving(cluster) == COPIES_PER_BROKER
    cluster.tick(_CHECK_MS)
    assert Counter(partition.adding_replicas for partition in partitions(cluster))[(3,)] == 1


def test_drain_replaces_a_lost_broker_that_stays_too() -> None:
    """A move that keeps it could not be complete, and the surplus broker could not end."""
    cluster = Conversation(
        broker_session_timeout_ms="600000",
        sparklog_balance_enable="false",
        sparklog_replace_after_ms="10000",
    ).start(0, 1, 2, 3, 4)
    cluster.create(creatable("t", assignments={0: (4, 0, 1)}), creatable("u", assignments={0: (0, 1)}))
    cluster.take(cluster.controller.broker_gone(1, cluster.epoch(1)))
    cluster.tick(20_000)
    assert moving(cluster) == 0
    resize(cluster, 4)
    cluster.tick(_CHECK_MS)
    catch_up(cluster)
    assert set(cluster.partition().replicas) == {0, 2, 3}
    assert cluster.partition(0, "u").replicas == (0, 1), "balancing is off, and nothing else asks for it"


def test_size_raised_after_a_change_of_the_controller_cancels_the_moves_of_the_former(
    cluster: Conversation,
) -> None:
    """The drain was given up, whichever controller began its moves."""
    cluster.create(creatable("t", assignments={0: (4, 0)}))
    resize(cluster, 3)
    cluster.tick(_CHECK_MS)
    assert moving(cluster) == 1
    cluster.take_over()
    cluster.tick(_CHECK_MS)
    resize(cluster, 5)
    cluster.tick(_CHECK_MS)
    assert moving(cluster) == 0


def test_no_move_begins_in_a_cluster_that_is_read_only(cluster: Conversation) -> None:
    """An orderly stop waits for copies in the object store, and new leaders and replicas would delay it."""
    cluster.create(creatable("t", assignments={0: (4, 0)}))
    resize(cluster, 3)
    config = AlterableConfig(name=READ_ONLY_KEY, config_operation=_SET, value="true")
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name="", configs=(config,))
    cluster.say(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    cluster.tick(_CHECK_MS)
    assert moving(cluster) == 0


def test_partition_whose_leader_has_just_changed_rests_before_it_moves(cluster: Conversation) -> None:
    """A producer doubles its pause with each leader change that comes before its next attempt."""
    cluster.create(creatable("t", assignments={0: (0, 4), 1: (1, 4)}))
    cluster.tick()
    cluster.take(cluster.controller.broker_gone(0, cluster.epoch(0)))
    assert partitions(cluster)[0].leader == 4
    resize(cluster, 4)
    cluster.tick(_CHECK_MS)
    assert [each.is_reassigning for each in partitions(cluster)] == [False, True]
    for _ in range(3):
        cluster.heartbeat(4)
        cluster.tick(max(REST_MS, _CHECK_MS))
    assert partitions(cluster)[0].is_reassigning
