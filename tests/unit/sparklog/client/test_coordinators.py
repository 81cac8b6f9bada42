"""Whoever coordinates is found, wherever it is by then."""

from kio.schema.end_txn.v5.request import EndTxnRequest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.coordinators import CoordinatorKind, Coordinators
from tests.unit.sparklog.client.brokers import Brokers, with_client


def test_coordinator_that_the_metadata_did_not_know_is_asked_where_the_answer_says() -> None:
    """A broker that was away when the client connected is unknown to it for ever otherwise."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.away = {0}
        client.find_brokers()
        brokers.away = set()
        request = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
        answer = Coordinators(client).ask(
            CoordinatorKind.TRANSACTION, "t", request, lambda answer: answer.error_code, doing="ending"
        )
        assert answer.producer_id == 1

    with_client(use)


def test_coordinators_of_a_group_and_of_transactional_ids_are_looked_for_at_once() -> None:
    """Each look waits on purpose: it cost a job 10 ms for each of its ids and its group."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.questions_at_once = 2
        found = Coordinators(client)
        keys = {CoordinatorKind.TRANSACTION: ["t", "u"], CoordinatorKind.GROUP: ["g"]}
        found.find(keys)
        brokers.questions_at_once = 100
        found.find(keys)
        assert {found.broker_of(kind, key) for kind, each in keys.items() for key in each} == {0}

    with_client(use)
