"""UnregisterBroker: who is forgotten counts for nothing, not even if it comes back."""

from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.metadata.schemas import PartitionChangeRecord, UnregisterBrokerRecord
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable, registration


def unregister(conversation: Conversation, broker_id: int) -> ControllerResult:
    return conversation.say(UnregisterBrokerRequest(broker_id=broker_id))


def test_unregistered_broker_leaves_isr_and_leadership_before_it_is_forgotten() -> None:
    """Records about an unknown broker could not be replayed."""
    conversation = Conversation().start(0, 1, 2)
    conversation.create(creatable("t", assignments={0: (0, 1, 2)}))
    epoch = conversation.epoch(0)
    decision = unregister(conversation, 0)
    assert decision.reply.error_code is ErrorCode.none
    assert decision.records == [
        PartitionChangeRecord(partition_id=0, topic_id=conversation.topic_id(), isr=(1, 2), leader=1),
        UnregisterBrokerRecord(broker_id=0, broker_epoch=epoch),
    ]
    assert 0 not in conversation.image.brokers
    assert conversation.partition().replicas == (0, 1, 2)


def test_unregistered_broker_that_comes_back_must_catch_up_before_it_leads() -> None:
    """Whether its machine went down meanwhile nobody knows any more."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    conversation.take(conversation.controller.broker_gone(1, conversation.epoch(1)))
    assert conversation.partition().elr == (1,)
    unregister(conversation, 1)
    assert conversation.partition().elr == ()
    conversation.take(conversation.controller.broker_gone(0, conversation.epoch(0)))
    conversation.say(registration(1, incarnation=2))
    conversation.heartbeat(1)
    assert conversation.partition().leader is None


def test_unregistering_a_broker_of_very_many_partitions_lets_others_decide_in_between() -> None:
    """One decision about ten thousand would hold the loop."""
    conversation = Conversation(partitions_per_decision=2).start(0, 1)
    conversation.create(creatable("t", assignments=dict.fromkeys(range(5), (0, 1))))
    request = UnregisterBrokerRequest(broker_id=0)
    parts = 0
    while conversation.take(conversation.controller.handle(request, 0)).is_first_part:
        parts += 1
        assert conversation.image.brokers[0].fenced
    assert parts == 2
    assert all(conversation.partition(number).isr == (1,) for number in range(5))
    assert 0 not in conversation.image.brokers


def test_unregistering_a_stranger_is_refused() -> None:
    """A second attempt is told that there is nothing left to do."""
    conversation = Conversation().start(0)
    decision = unregister(conversation, 7)
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.broker_id_not_registered)
