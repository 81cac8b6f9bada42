"""Questions to several brokers at once, each until it is answered."""

from typing import Any

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.metadata.v11.request import MetadataRequest

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId
from sparklog.user.client.broker_requests import ask_side_by_side, ask_until_answered
from sparklog.user.client.cluster_client import ClusterClient
from tests.unit.sparklog.user.client.brokers import Brokers, with_client

END = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
BROKERS = MetadataRequest(
    topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
)


class Asked:
    """A question that notes whom it was put to, and that is to be put to somebody else after a failure."""

    def __init__(self, request: Any, *broker_ids: BrokerId) -> None:
        self.request = request
        self.put_to: list[BrokerId] = []
        self.answers: list[Any] = []
        self._broker_ids = list(broker_ids)

    def broker_id(self) -> BrokerId:
        self.put_to.append(self._broker_ids[0])
        return self._broker_ids[0]

    def hear(self, answer: Any) -> KafkaError | None:
        self.answers.append(answer)
        if isinstance(answer, KafkaError):
            del self._broker_ids[0]
            return answer
        return None


def test_question_that_is_answered_is_not_asked_again_with_one_that_is_not() -> None:
    """What was written would be there twice, if the log did not know it again."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.find_brokers()
        brokers.die(1)
        answered, lost = Asked(END, 0), Asked(BROKERS, 1, 2)
        ask_until_answered(client, (answered, lost), doing="asking")
        assert (answered.put_to, lost.put_to) == ([0], [1, 2])
        assert answered.answers[0].producer_epoch == 1
        assert lost.answers[0].error_code is ErrorCode.network_exception

    with_client(use)


def test_requests_of_one_broker_are_answered_in_their_order_and_fail_together() -> None:
    """Answers come in the order of requests; of a connection that is lost nothing more is known."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.find_brokers()
        ended, told, ended_again = ask_side_by_side(client, [(0, END), (1, BROKERS), (0, END)])
        assert (ended.producer_epoch, len(told.brokers), ended_again.producer_epoch) == (1, 3, 1)
        brokers.die(0)
        first, told, second = ask_side_by_side(client, [(0, END), (1, BROKERS), (0, END)])
        assert first is second
        assert (first.error_code, len(told.brokers)) == (ErrorCode.network_exception, 3)
        # Of the lost connection nothing is kept: where the broker is now, it is found.
        client.broker_named(0, ("127.0.0.1", brokers.listeners[1].port))
        [told] = ask_side_by_side(client, [(0, BROKERS)])
        assert len(told.brokers) == 3

    with_client(use)
