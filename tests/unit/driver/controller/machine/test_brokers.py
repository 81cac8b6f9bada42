"""A broker's life: what is registered, fenced, unfenced, and what happens to its partitions."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.node.metadata.schemas import (
    NO_LEADER,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable, directory_of, registration


def fence_record(conversation: Conversation, broker_id: int) -> BrokerRegistrationChangeRecord:
    """Return the record that fences the broker's present registration."""
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=conversation.epoch(broker_id), fenced=1
    )


def test_registration_first_is_fenced_with_offset_as_epoch() -> None:
    """A broker epoch must name one registration for ever, so it is an offset of the log."""
    decision = Conversation().say(registration(0))
    assert decision.records == [
        RegisterBrokerRecord(
            broker_id=0,
            incarnation_id=UUID(int=1),
            broker_epoch=6,
            end_points=(BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0),),
            features=tuple(
                BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in (
                    ("metadata.version", (30, 30)),
                    ("eligible.leader.replicas.version", (0, 1)),
                    ("group.version", (0, 1)),
                    ("transaction.version", (0, 2)),
                )
            ),
            rack="rack-0",
            fenced=True,
            log_dirs=(directory_of(0),),
        )
    ]
    assert (decision.reply.error_code, decision.reply.broker_epoch) == (ErrorCode.none, 6)


def test_registration_other_cluster_is_refused() -> None:
    """A broker with another cluster's data must not come in."""
    decision = Conversation().say(registration(0, cluster_id="other"))
    assert decision.records == []
    assert decision.reply.error_code is ErrorCode.inconsistent_cluster_id


def test_registration_id_of_live_broker_is_refused_until_session_ends() -> None:
    """Two processes with one broker id, each with a directory of its own, would pass for one replica."""
    conversation = Conversation().start(0)
    other = registration(0, incarnation=2, directories=(UUID(int=777),))
    second = conversation.say(other)
    assert (second.records, second.reply.error_code) == ([], ErrorCode.duplicate_broker_registration)
    conversation.tick(3000)
    assert conversation.say(other).reply.error_code is ErrorCode.none


def test_registration_with_the_directory_of_the_live_one_is_accepted_at_once() -> None:
    """The directory's lock proves that the process before it is gone, sooner than any session."""
    conversation = Conversation().start(0)
    assert conversation.say(registration(0, incarnation=2)).reply.error_code is ErrorCode.none


def test_registration_after_process_ended_is_accepted_at_once() -> None:
    """A broker that was seen to die comes back without waiting for its old session."""
    conversation = Conversation().start(0)
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    assert conversation.say(registration(0, incarnation=2)).reply.error_code is ErrorCode.none


def test_registration_repeated_keeps_epoch_and_state() -> None:
    """A retry of a registration whose answer was lost must not fence the broker."""
    conversation = Conversation().start(0)
    epoch = conversation.epoch(0)
    assert conversation.say(registration(0)).reply.broker_epoch == epoch
    assert not conversation.image.brokers[0].fenced


def test_registration_without_a_feature_of_the_cluster_is_refused() -> None:
    """A broker that cannot read the metadata must not act on it."""
    conversation = Conversation()
    request = registration(0)
    without = replace(request, features=request.features[:1])
    decision = conversation.say(without)
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.unsupported_version)
    assert conversation.say(request).reply.error_code is ErrorCode.none


@pytest.mark.parametrize(
    "directories", [(), (UUID(int=7),), (UUID(int=700), UUID(int=700)), (directory_of(1),)]
)
def test_registration_bad_directories_is_refused(directories: tuple[UUID, ...]) -> None:
    """Directory ids decide whether a returning broker still has its log."""
    conversation = Conversation().start(1)
    decision = conversation.say(registration(0, directories=directories))
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.invalid_registration)


def test_registration_new_incarnation_leaves_isr_in_same_batch() -> None:
    """What the old process had in memory is gone: the new one must catch up before it counts."""
    conversation = Conversation().start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    conversation.now_ms += 2999
    for broker_id in (1, 2):
        conversation.heartbeat(broker_id)
    conversation.now_ms += 1
    before = conversation.image.end_offset
    decision = conversation.say(registration(0, incarnation=2))
    assert decision.records[0] == PartitionChangeRecord(
        partition_id=0, topic_id=conversation.topic_id(), isr=(1, 2), leader=1
    )
    assert decision.reply.broker_epoch == before + 1 == conversation.epoch(0)
    assert conversation.image.brokers[0].fenced
    assert conversation.image.brokers[0].incarnation_id == UUID(int=2)


def test_heartbeat_before_own_registration_is_applied_stays_fenced() -> None:
    """Whoever has not applied its own registration may still believe in an older life."""
    conversation = Conversation()
    conversation.say(registration(0))
    decision = conversation.heartbeat(0, current_metadata_offset=conversation.epoch(0) - 1)
    assert (decision.records, decision.reply.is_fenced, decision.reply.is_caught_up) == ([], True, False)
    decision = conversation.heartbeat(0)
    assert decision.records == [
        BrokerRegistrationChangeRecord(broker_id=0, broker_epoch=conversation.epoch(0), fenced=-1)
    ]
    assert (decision.reply.is_fenced, decision.reply.is_caught_up) == (False, True)


@pytest.mark.parametrize("broker_id", [0, 7])
def test_heartbeat_of_unknown_registration_is_stale(broker_id: int) -> None:
    """A zombie must learn that its place is another's."""
    conversation = Conversation().start(0)
    decision = conversation.heartbeat(broker_id, broker_epoch=99) if broker_id == 0 else None
    if decision is None:
        conversation.start(broker_id)
        decision = conversation.heartbeat(broker_id, broker_epoch=conversation.epoch(0))
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.stale_broker_epoch)


def test_session_silent_broker_is_fenced_with_its_leaders_moved() -> None:
    """All partitions of a dead broker must get leaders in one batch with the fencing."""
    conversation = Conversation().start(0, 1, 2)
    conversation.create(
        creatable("t", assignments={0: (0, 1, 2), 1: (1, 2, 0)}), creatable("u", assignments={0: (2, 1)})
    )
    conversation.now_ms += 2000
    for broker_id in (1, 2):
        conversation.heartbeat(broker_id)
    records = conversation.tick(1000)
    topic_id = conversation.topic_id()
    assert records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(1, 2), leader=1),
        PartitionChangeRecord(partition_id=1, topic_id=topic_id, isr=(1, 2)),
        fence_record(conversation, 0),
    ]
    assert conversation.tick(500) == []


def test_session_time_in_which_controller_stood_still_does_not_count() -> None:
    """A controller that was stopped for a minute must not fence every broker when it wakes."""
    conversation = Conversation().start(0)
    conversation.tick()
    conversation.now_ms += 60_000
    assert conversation.tick() == []
    assert conversation.tick(2999) == []
    assert conversation.tick(1) == [fence_record(conversation, 0)]


def test_session_two_silent_brokers_second_election_knows_of_first() -> None:
    """The partition must not end up led by the other dead broker."""
    conversation = Conversation().start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    conversation.now_ms += 2000
    conversation.heartbeat(2)
    conversation.tick(1000)
    assert (conversation.partition().leader, conversation.partition().isr) == (2, (2,))


def test_broker_gone_last_in_sync_replica_leaves_partition_waiting() -> None:
    """The last in-sync replica must lead again when it is back, and nobody else meanwhile."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.propose(0, (0,))
    decision = conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    assert decision.records == [
        PartitionChangeRecord(
            partition_id=0,
            topic_id=conversation.topic_id(),
            isr=(),
            leader=NO_LEADER,
            eligible_leader_replicas=(0,),
            last_known_elr=(0,),
        ),
        fence_record(conversation, 0),
    ]
    conversation.say(registration(0, incarnation=2, previous_broker_epoch=conversation.epoch(0)))
    back = conversation.heartbeat(0)
    assert back.records[1] == PartitionChangeRecord(
        partition_id=0,
        topic_id=conversation.topic_id(),
        isr=(0,),
        leader=0,
        eligible_leader_replicas=(),
        last_known_elr=(),
    )


def test_broker_back_without_its_directory_does_not_lead() -> None:
    """A broker that lost its disk would truncate everybody else's log to its own empty one."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.propose(0, (0,))
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    conversation.say(registration(0, incarnation=2, directories=(UUID(int=9999),)))
    conversation.heartbeat(0)
    assert conversation.partition().leader is None


def test_broker_gone_unclean_election_allowed_elects_alone_and_recovering() -> None:
    """Where the topic prefers availability, the election must say that records may be lost."""
    conversation = Conversation().start(0, 1)
    conversation.create(
        creatable("t", assignments={0: (0, 1)}, configs={"unclean.leader.election.enable": "true"})
    )
    conversation.propose(0, (0,))
    decision = conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    assert decision.records[0] == PartitionChangeRecord(
        partition_id=0, topic_id=conversation.topic_id(), isr=(1,), leader=1, leader_recovery_state=1
    )


def test_broker_gone_of_older_registration_does_nothing() -> None:
    """News of a dead process must not fence the one that has taken its place."""
    conversation = Conversation().start(0)
    old_epoch = conversation.epoch(0)
    conversation.take(conversation.controller.broker_gone(0, old_epoch))
    conversation.say(registration(0, incarnation=2))
    conversation.heartbeat(0)
    assert conversation.controller.broker_gone(0, old_epoch).records == []


def test_controlled_shutdown_moves_leaders_then_lets_go() -> None:
    """A broker may leave only when others lead and know that they do."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    decision = conversation.heartbeat(0, want_shut_down=True)
    assert decision.records == [
        BrokerRegistrationChangeRecord(
            broker_id=0, broker_epoch=conversation.epoch(0), in_controlled_shutdown=1
        ),
        PartitionChangeRecord(partition_id=0, topic_id=conversation.topic_id(), isr=(1,), leader=1),
    ]
    assert not decision.reply.should_shut_down
    waiting = conversation.heartbeat(0, want_shut_down=True)
    assert (waiting.records, waiting.reply.should_shut_down) == ([], False)
    conversation.controller.metadata_fetched(1, conversation.image.end_offset)
    decision = conversation.heartbeat(0, want_shut_down=True)
    assert decision.records == [fence_record(conversation, 0)]
    assert decision.reply.should_shut_down


def test_controlled_shutdown_of_broker_without_leaderships_is_granted_at_once() -> None:
    """There is nothing to wait for."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    decision = conversation.heartbeat(1, want_shut_down=True)
    assert decision.records == [
        PartitionChangeRecord(partition_id=0, topic_id=conversation.topic_id(), isr=(0,)),
        fence_record(conversation, 1),
    ]
    assert decision.reply.should_shut_down


def test_controlled_shutdown_of_broker_that_loses_its_session_still_ends() -> None:
    """It was on its way out: nothing may bring it back but a new registration."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    assert not conversation.heartbeat(0, want_shut_down=True).reply.should_shut_down
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    decision = conversation.heartbeat(0)
    assert (decision.records, decision.reply.should_shut_down) == ([], True)


def test_broker_to_leave_loses_its_leaders_at_once_and_is_told_at_a_heartbeat_when_all_know() -> None:
    """A broker on a decommissioned executor knows nothing of it, and nobody waits for its heartbeat."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    assert conversation.take(conversation.controller.shut_down_broker(0, "decommission")).records == [
        BrokerRegistrationChangeRecord(
            broker_id=0, broker_epoch=conversation.epoch(0), in_controlled_shutdown=1
        ),
        PartitionChangeRecord(partition_id=0, topic_id=conversation.topic_id(), isr=(1,), leader=1),
    ]
    assert conversation.controller.shut_down_broker(0, "decommission").records == []
    early = conversation.heartbeat(0)
    assert (early.records, early.reply.should_shut_down) == ([], False)
    conversation.heartbeat(1)
    told = conversation.heartbeat(0)
    assert told.records == [fence_record(conversation, 0)]
    assert (told.reply.should_shut_down, told.reply.is_fenced) == (True, True)
    assert conversation.say(registration(0, incarnation=2)).reply.error_code is ErrorCode.none
    assert not conversation.heartbeat(0).reply.should_shut_down


def test_broker_to_leave_while_it_is_fenced_is_told_at_its_next_heartbeat() -> None:
    """A broker that is starting on an executor that goes must not come up there first."""
    conversation = Conversation()
    conversation.say(registration(0))
    conversation.take(conversation.controller.shut_down_broker(0, "decommission"))
    told = conversation.heartbeat(0)
    assert (told.records, told.reply.should_shut_down, told.reply.is_fenced) == ([], True, True)


def test_broker_to_leave_that_is_gone_or_in_a_stopping_cluster_changes_nothing() -> None:
    """Spark's news and the cluster's end cross each other."""
    conversation = Conversation().start(0)
    assert conversation.controller.shut_down_broker(7, "decommission").records == []
    conversation.start(1)
    conversation.take(conversation.controller.broker_gone(1, conversation.epoch(1)))
    assert conversation.controller.shut_down_broker(1, "decommission").records == []
    conversation.controller.shut_down_brokers()
    assert conversation.controller.shut_down_broker(0, "decommission").records == []


def test_stopping_cluster_tells_everybody_and_elects_nobody() -> None:
    """On a stop the ISRs must stay what they are, or only the last to leave could lead at the next start."""
    conversation = Conversation().start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.controller.shut_down_brokers()
    decision = conversation.heartbeat(0)
    assert (decision.records, decision.reply.should_shut_down) == ([], True)
    assert conversation.controller.broker_gone(0, conversation.epoch(0)).records == []
    assert conversation.tick(10_000) == []


def test_stopping_cluster_tells_a_fenced_broker_that_all_go() -> None:
    """One that is just starting must end for good too, and not be wanted back."""
    conversation = Conversation()
    conversation.say(registration(0))
    conversation.controller.shut_down_brokers()
    reply = conversation.heartbeat(0).reply
    assert (reply.should_shut_down, reply.is_fenced) == (True, False)


def test_offline_directory_moves_what_lay_in_it() -> None:
    """A broker with one broken disk of two goes on with the other."""
    conversation = Conversation()
    both = (UUID(int=800), UUID(int=801))
    conversation.say(registration(0, directories=both))
    conversation.heartbeat(0)
    decision = conversation.heartbeat(0, offline_log_dirs=(both[0],))
    assert decision.records == [
        BrokerRegistrationChangeRecord(broker_id=0, broker_epoch=conversation.epoch(0), log_dirs=(both[1],))
    ]
    assert conversation.heartbeat(0, offline_log_dirs=(both[0],)).records == []
    conversation.heartbeat(0, offline_log_dirs=both)
    assert conversation.image.brokers[0].fenced
