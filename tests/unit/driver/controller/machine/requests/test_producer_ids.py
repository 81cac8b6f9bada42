"""Producer ids: in blocks for brokers, one by one for clients of the controller, and none of them twice."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.allocate_producer_ids.v0 import AllocateProducerIdsRequest
from kio.schema.init_producer_id.v6 import InitProducerIdRequest

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.requests.producer_ids import NO_BROKER_EPOCH, PRODUCER_ID_BLOCK_SIZE
from sparklog.node.metadata.schemas import ProducerIdsRecord
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation

LAST_PRODUCER_ID = 2**63 - 1


def allocate(conversation: Conversation, broker_id: int, broker_epoch: int | None = None) -> ControllerResult:
    """Ask for a block."""
    epoch = conversation.epoch(broker_id) if broker_epoch is None else broker_epoch
    return conversation.say(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))


def init(conversation: Conversation, **fields: Any) -> ControllerResult:
    """Ask for one id, as an idempotent producer does, but for `fields`."""
    asked = {"transactional_id": None, "transaction_timeout": timedelta(minutes=1), **fields}
    return conversation.say(InitProducerIdRequest(**asked))


def handed_out(conversation: Conversation, next_producer_id: int) -> None:
    """Have all ids below `next_producer_id` handed out."""
    record = ProducerIdsRecord(broker_id=0, broker_epoch=0, next_producer_id=next_producer_id)
    conversation.take(ControllerResult([record], None))


def test_blocks_never_overlap() -> None:
    """Two producers with one id would take each other's records for repetitions."""
    conversation = Conversation().start(0, 1)
    for number, broker_id in enumerate((0, 1, 0)):
        decision = allocate(conversation, broker_id)
        assert decision.records == [
            ProducerIdsRecord(
                broker_id=broker_id,
                broker_epoch=conversation.epoch(broker_id),
                next_producer_id=1000 * (number + 1),
            )
        ]
        assert (decision.reply.producer_id_start, decision.reply.producer_id_len) == (1000 * number, 1000)


def test_block_for_a_stale_broker_epoch_is_refused() -> None:
    """The broker that has the directory now may have taken its place."""
    stale = allocate(Conversation().start(0), 0, broker_epoch=0)
    assert (stale.records, stale.reply.error_code) == ([], ErrorCode.stale_broker_epoch)


def test_init_producer_id_gives_ids_outside_every_block() -> None:
    """A client of the controller and a client of a broker must not get the same id either."""
    conversation = Conversation().start(0)
    allocate(conversation, 0)
    for producer_id in (1000, 1001):
        decision = init(conversation)
        assert decision.records == [
            ProducerIdsRecord(
                broker_id=CONTROLLER_ID, broker_epoch=NO_BROKER_EPOCH, next_producer_id=producer_id + 1
            )
        ]
        reply = decision.reply
        assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (
            ErrorCode.none,
            producer_id,
            0,
        )
    assert allocate(conversation, 0).reply.producer_id_start == 1002


def test_init_producer_id_with_an_id_gives_another() -> None:
    """Without a transactional id nobody knows whose the old one is; as in Kafka, it is left behind."""
    conversation = Conversation()
    first = init(conversation).reply
    second = init(conversation, producer_id=first.producer_id, producer_epoch=0).reply
    assert (first.producer_id, second.producer_id) == (0, 1)


@pytest.mark.parametrize(
    ("transactional_id", "error_code"),
    [("t", ErrorCode.not_coordinator), ("", ErrorCode.invalid_request)],
)
def test_init_producer_id_with_a_transactional_id_is_sent_to_its_coordinator(
    transactional_id: str, error_code: ErrorCode
) -> None:
    """Only its coordinator knows who had it before; the client looks for that again."""
    conversation = Conversation()
    decision = init(conversation, transactional_id=transactional_id)
    reply = decision.reply
    assert (decision.records, reply.error_code, reply.producer_id) == ([], error_code, -1)


def test_producer_ids_that_are_used_up_are_refused() -> None:
    """An id that wraps round would be somebody's already."""
    conversation = Conversation().start(0)
    handed_out(conversation, LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE + 1)
    block = allocate(conversation, 0)
    assert (block.records, block.reply.error_code) == ([], ErrorCode.unknown_server_error)
    handed_out(conversation, LAST_PRODUCER_ID)
    one = init(conversation)
    assert (one.records, one.reply.error_code) == ([], ErrorCode.unknown_server_error)
