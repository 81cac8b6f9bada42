"""Transactions are listed whole, or not at all: who ends what is open must know of all that is."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.list_transactions.v0 import response as listed

from sparklog.node.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.node.serving.requests import Api, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.described_transactions import DescribeTransactionsResponse, TransactionState
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, TopicPartition
from sparklog.user.client.coordinators import CoordinatorClient
from sparklog.user.client.topics import Leader
from sparklog.user.client.transactional_ids import Transactions
from tests.unit.sparklog.user.client.brokers import Brokers, with_brokers

COORDINATOR: BrokerId = 0
ONLY = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


class CoordinatingBrokers(Brokers):
    """The first coordinates transactions; of the others each says that it doesn't, and word gets about."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = "sink.a"

    def apis(self, broker_id: BrokerId) -> dict[ApiKey, Api]:
        return super().apis(broker_id) | {
            ApiKey.LIST_TRANSACTIONS: Api(0, 0, self._list(broker_id)),
            ApiKey.DESCRIBE_TRANSACTIONS: Api(0, 0, self._describe(broker_id)),
            # Nothing is written here; but a cluster without these is refused.
            ApiKey.PRODUCE: Api(12, 12, self._is_not_asked),
            ApiKey.END_TXN: Api(5, 5, self._is_not_asked),
            ApiKey.TXN_OFFSET_COMMIT: Api(5, 5, self._is_not_asked),
        }

    def _is_not_asked(self, request: Request) -> Any:
        raise AssertionError("it is only looked for transactions")

    def _list(self, broker_id: BrokerId) -> Callable[[Request], Any]:
        def answer(request: Request) -> listed.ListTransactionsResponse:
            known = listed.TransactionState(
                transactional_id=self.is_open, producer_id=7, transaction_state="Ongoing"
            )
            return listed.ListTransactionsResponse(
                throttle_time=timedelta(0),
                error_code=ErrorCode.none,
                unknown_state_filters=(),
                transaction_states=(known,) if broker_id == COORDINATOR else (),
            )

        return answer

    def _describe(self, broker_id: BrokerId) -> Callable[[Request], Any]:
        def answer(request: Request) -> DescribeTransactionsResponse:
            if broker_id != COORDINATOR:
                self.leaders[ONLY] = Leader(COORDINATOR, 2)
            return DescribeTransactionsResponse(
                throttle_time=timedelta(0),
                transaction_states=tuple(
                    self._state(broker_id, each) for each in request.body.transactional_ids
                ),
            )

        return answer

    def _state(self, broker_id: BrokerId, transactional_id: str) -> TransactionState:
        error_code = (
            ErrorCode.none if transactional_id == self.is_open else ErrorCode.transactional_id_not_found
        )
        return TransactionState(
            error_code=error_code if broker_id == COORDINATOR else ErrorCode.not_coordinator,
            transactional_id=transactional_id,
            transaction_state="Ongoing",
            transaction_timeout=timedelta(minutes=1),
            transaction_start_time=None,
            producer_id=7,
            producer_epoch=0,
            topics=(),
        )


def test_transaction_that_cannot_be_told_of_is_not_taken_for_ended() -> None:
    """What was decided, and is not known to be open, would be taken for done now and be aborted later."""

    class Failing(CoordinatingBrokers):
        def _state(self, broker_id: BrokerId, transactional_id: str) -> TransactionState:
            state = super()._state(broker_id, transactional_id)
            return replace(state, error_code=ErrorCode.unknown_server_error)

    def use(brokers: Brokers) -> None:
        brokers.leaders[ONLY] = Leader(COORDINATOR, 1)
        with brokers.client() as client, pytest.raises(KafkaError, match=r"sink\.a could not be described"):
            Transactions(client, CoordinatorClient(client)).described("sink.", ("Ongoing",))

    with_brokers(use, Failing())


def test_listing_by_who_has_not_heard_that_a_coordinator_is_another_is_made_again() -> None:
    """Who was it before lists nothing, without an error: what was open stayed open for ever."""

    def use(brokers: Brokers) -> None:
        brokers.leaders[ONLY] = Leader(1, 1)
        with brokers.client() as client:
            found = Transactions(client, CoordinatorClient(client)).described("sink.", ("Ongoing",))
        assert [each.transactional_id for each in found] == ["sink.a"]

    with_brokers(use, CoordinatingBrokers())
