"""Whoever coordinates is found, wherever it is by then."""

from kio.schema.end_txn.v5.request import EndTxnRequest

from sparklog.node.metadata.partition_for import CoordinatorType
from sparklog.node.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.coordinators import CoordinatorClient
from sparklog.user.client.topics import Leader
from tests.unit.sparklog.user.client.brokers import Brokers, with_client


def test_coordinator_that_the_metadata_did_not_know_is_asked_where_the_answer_says() -> None:
    """A broker that was away when the client connected is unknown to it for ever otherwise."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.away = {0}
        client.find_brokers()
        brokers.away = set()
        request = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
        answer = CoordinatorClient(client).ask(
            CoordinatorType.TRANSACTION, "t", request, lambda answer: answer.error_code, doing="ending"
        )
        assert answer.producer_id == 1

    with_client(use)


def test_coordinators_of_a_group_and_of_transactional_ids_are_looked_for_at_once() -> None:
    """Each look waits on purpose: it cost a job 10 ms for each of its ids and its group."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.questions_at_once = 2
        found = CoordinatorClient(client)
        keys = {CoordinatorType.TRANSACTION: ["t", "u"], CoordinatorType.GROUP: ["g"]}
        found.find(keys)
        brokers.questions_at_once = 100
        found.find(keys)
        assert {found.broker_of(kind, key) for kind, each in keys.items() for key in each} == {0}

    with_client(use)


def test_coordinator_of_a_new_name_is_who_leads_its_partition_and_nobody_is_asked_for_it() -> None:
    """Whoever is asked waits on purpose, and each job comes with new names."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.questions_at_once = 100
        for partition, broker_id in enumerate((2, 1, 0)):
            brokers.leaders[TopicPartition(TRANSACTION_STATE_TOPIC, partition)] = Leader(broker_id, 1)
        found = CoordinatorClient(client)
        found.expect({CoordinatorType.TRANSACTION: ["t", "u"]})
        # Java's hash codes of these are 116 and 117.
        assert [found.broker_of(CoordinatorType.TRANSACTION, name) for name in ("t", "u")] == [0, 2]

    with_client(use)


def test_coordinator_that_leads_no_more_is_asked_for() -> None:
    """What was seen of leaders is not asked for again with each name, and gets old."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.leaders[TopicPartition(TRANSACTION_STATE_TOPIC, 0)] = Leader(1, 1)
        found = CoordinatorClient(client)
        found.expect({CoordinatorType.TRANSACTION: ["t"]})
        request = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
        answer = found.ask(
            CoordinatorType.TRANSACTION, "t", request, lambda answer: answer.error_code, doing="ending"
        )
        assert answer.producer_id == 1
        assert found.broker_of(CoordinatorType.TRANSACTION, "t") == 0
        brokers.leaders[TopicPartition(TRANSACTION_STATE_TOPIC, 0)] = Leader(2, 2)
        found.expect({CoordinatorType.TRANSACTION: ["u"]})
        assert found.broker_of(CoordinatorType.TRANSACTION, "u") == 2, "leaders are looked for anew"

    with_client(use)


def test_coordinator_whose_address_is_not_known_is_asked_for() -> None:
    """A task has another name at each attempt: who leads its partition was tried over and over."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        brokers.away = {1}
        client.find_brokers()
        brokers.leaders[TopicPartition(TRANSACTION_STATE_TOPIC, 0)] = Leader(1, 1)
        found = CoordinatorClient(client)
        found.expect({CoordinatorType.TRANSACTION: ["t"]})
        assert found.broker_of(CoordinatorType.TRANSACTION, "t") == 0, "as whoever was asked says"

    with_client(use)
