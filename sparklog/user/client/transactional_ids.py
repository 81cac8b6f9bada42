"""Transactions by requests to their coordinators: initialized by id, ended by epoch, listed by pattern.

Version 2 of transactions is required (KIP-890, Kafka 4.0): each transaction has its own epoch, so a request
to end one cannot hit the next one, and repeating it is harmless.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse

from sparklog.node.calling.negotiation import api_versions_requests
from sparklog.node.metadata.partition_for import CoordinatorType, partition_for
from sparklog.node.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.coordinators import CoordinatorClient
from sparklog.user.client.errors import UnknownTopicError
from sparklog.user.client.topic_descriptions import described_leaders
from sparklog.user.client.topics import Leader
from sparklog.user.client.transactions import (
    TransactionDescription,
    describe_transactions,
    list_transactions,
    transaction_description,
)

_FEATURE: Final = "transaction.version"
_NEEDED_LEVEL: Final = 2
_PREPARED_STATES: Final = ("PrepareCommit", "PrepareAbort")
_PREFIXES_KEPT: Final = 16
_LAST_CHARACTERS: Final = [chr(code) for code in range(ord("0"), ord("z") + 1)]
"""Java's hashes of ids that differ in these characters are consecutive, and so are their partitions."""
_NEEDED_VERSIONS: Final = {
    ApiKey.PRODUCE: 12,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
}


class TransactionsUnsupportedError(KafkaError):
    """The cluster lacks the required version of transactions."""

    def __init__(self, what: str) -> None:
        super().__init__(
            ErrorCode.unsupported_version,
            f"the cluster cannot be written exactly once: {what}. It needs version 2 of transactions, which "
            "Kafka has since 4.0 (kafka-features.sh upgrade --feature transaction.version=2); or set the "
            "option deliveryGuarantee=atLeastOnce",
        )

    @property
    def retriable(self) -> bool:
        """Never: an operator has to act."""
        return False


class Transactions:
    """Asks the coordinators of `cluster`; the first call checks that they support it."""

    def __init__(self, cluster: ClusterClient, coordinators: CoordinatorClient) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._list_version: int | None = None
        """Highest known version of ListTransactions; None before `check`."""
        self._leaders: Mapping[int, Leader | None] | None = None
        """Coordinating leaders as of the last request."""

    def initialize(self, transactional_id: str, timeout_ms: int) -> InitProducerIdResponse:
        """Initialize an id, which aborts its open transaction; the caller handles error codes.

        Raises:
            TransactionsUnsupportedError: the cluster has no version 2 of transactions.
            ApiTimeoutError: the coordinator could not be asked within `api_timeout_ms`.
        """
        self.check()
        return self._cluster.retry(
            f"initializing transactional id {transactional_id}",
            lambda: self.initialize_once(transactional_id, timeout_ms),
        )

    def initialize_once(self, transactional_id: str, timeout_ms: int) -> InitProducerIdResponse:
        """Initialize an id without retries, after `check`.

        Raises:
            KafkaError: the coordinator did not answer, and may still initialize the id; or its error is
                retriable.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout=timedelta(milliseconds=timeout_ms)
        )
        return self._coordinators.ask_once(
            CoordinatorType.TRANSACTION, transactional_id, request, _error_code
        )

    def end(
        self, transactions: Iterable[tuple[str, ProducerId, ProducerEpoch]], *, commit: bool
    ) -> dict[str, EndTxnResponse]:
        """End a transaction of each of several ids; the caller handles error codes that are not retriable.

        Raises:
            ApiTimeoutError: some coordinator could not be asked within `api_timeout_ms`.
        """
        requests = {
            transactional_id: EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=commit,
            )
            for transactional_id, producer_id, producer_epoch in transactions
        }
        doing = f"{'committing' if commit else 'aborting'} {len(requests)} transactions"
        return self._coordinators.ask_all(CoordinatorType.TRANSACTION, requests, _error_code, doing=doing)

    def described(
        self, prefix: str, states: Collection[str], named: Collection[str] = ()
    ) -> list[TransactionDescription]:
        """Return the transactions with an id prefix or an id in `named` that are in one of the states.

        Ids outside `named` may be missing while their coordinator is being replaced, if the client may not
        describe the coordinators' topic.

        Raises:
            ApiTimeoutError: some broker could not be asked within `api_timeout_ms`.
            KafkaError: the request is refused.
        """
        self.check()
        listed = self._cluster.retry("listing transactions", lambda: self._list(prefix, states))
        return self.describe(dict.fromkeys((*listed, *named)), states)

    def describe(self, ids: Collection[str], states: Collection[str]) -> list[TransactionDescription]:
        """Return the transactions of ids that are in one of the states.

        Raises:
            ApiTimeoutError: some coordinator could not be asked within `api_timeout_ms`.
            KafkaError: one returns neither a transaction nor its absence. Taking it for ended would let it
                be aborted later, decided or not.
        """
        answers = self._coordinators.ask_all(
            CoordinatorType.TRANSACTION,
            {each: DescribeTransactionsRequest(transactional_ids=(each,)) for each in ids},
            lambda response: response.transaction_states[0].error_code,
            doing="describing transactions",
        )
        described = [answers[each].transaction_states[0] for each in ids]
        for each in described:
            if each.error_code not in (ErrorCode.none, ErrorCode.transactional_id_not_found):
                raise KafkaError(
                    each.error_code, f"transactional id {each.transactional_id} could not be described"
                )
        return [
            transaction_description(each)
            for each in described
            if each.error_code is ErrorCode.none and each.transaction_state in states
        ]

    def unmarked(self, ids: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions in which prepared transactions have no marker yet; asked once.

        Raises:
            KafkaError: some coordinator can't be asked.
        """
        coordinators = {each: self._coordinators.broker_of(CoordinatorType.TRANSACTION, each) for each in ids}
        described = describe_transactions(self._cluster, coordinators)
        for failure in described.failures.values():
            raise failure
        return sorted(
            {
                partition
                for each in described.transactions.values()
                if each.state in _PREPARED_STATES
                for partition in each.partitions
            }
        )

    def check(self) -> None:
        """Check once that the cluster supports the required requests and features.

        Raises:
            TransactionsUnsupportedError: it does not.
            ApiTimeoutError: no broker answered within `api_timeout_ms`.
        """
        if self._list_version is None:
            self._list_version = self._cluster.retry("asking for API versions", self._checked)

    def _checked(self) -> int:
        broker_id, channel = self._cluster.any_channel()
        try:
            attempts = api_versions_requests()
            response = channel.request(next(attempts))
            while response.error_code is not ErrorCode.none:
                response = channel.request(attempts.send(response))
        except KafkaError:
            self._cluster.disconnect(broker_id)
            raise
        known = {item.api_key: item.max_version for item in response.api_keys}
        for api_key, version in _NEEDED_VERSIONS.items():
            if known.get(int(api_key), -1) < version:
                raise TransactionsUnsupportedError(f"it does not support {api_key.name} v{version}")
        levels = {each.name: each.max_version_level for each in getattr(response, "finalized_features", ())}
        if (level := levels.get(_FEATURE, 0)) < _NEEDED_LEVEL:
            raise TransactionsUnsupportedError(f"its {_FEATURE} is {level}")
        return int(known[int(ApiKey.LIST_TRANSACTIONS)])

    def _list(self, prefix: str, states: Collection[str]) -> list[str]:
        """List the ids of all coordinators.

        Raises:
            KafkaError: LEADER_NOT_AVAILABLE or NOT_COORDINATOR (retriable) if a coordinator changed during
                the listing, or before it without the described topic showing that: no answer may have its
                transactions. Or the request is refused.
        """
        assert self._list_version is not None, "call check first"
        leaders, self._leaders = self._leaders or self._coordinating(), None
        if leaders is None:
            brokers = self._cluster.broker_ids()
        elif None in leaders.values():
            raise KafkaError(ErrorCode.leader_not_available, "some transactions have no coordinator")
        else:
            brokers = sorted({leader.broker_id for leader in leaders.values() if leader is not None})
        listing = list_transactions(
            self._cluster,
            brokers,
            states=tuple(states),
            prefix=prefix,
            version=self._list_version,
            coordinated=_one_of_each_partition(prefix, leaders or {}),
        )
        for failure in listing.failures.values():
            if failure.retriable:
                self._cluster.forget_brokers()
            raise failure
        if leaders:
            self._leaders = self._coordinating()
            if self._leaders != leaders:
                raise KafkaError(ErrorCode.leader_not_available, "coordinators of transactions have changed")
        return [each.transactional_id for each in listing.transactions]

    def _coordinating(self) -> Mapping[int, Leader | None] | None:
        """Return the coordinators by partition; empty before the first transaction; None if not visible."""
        try:
            return described_leaders(self._cluster, TRANSACTION_STATE_TOPIC)
        except KafkaError as error:
            if error.error_code is ErrorCode.topic_authorization_failed:
                return None
            if error.error_code is not ErrorCode.unknown_topic_or_partition:
                raise
        # A broker that has just started knows no topics, and delays its answer to Metadata.
        self._cluster.forget(TRANSACTION_STATE_TOPIC)
        try:
            return self._cluster.topic(TRANSACTION_STATE_TOPIC).leaders
        except UnknownTopicError:
            return {}


def _one_of_each_partition(prefix: str, leaders: Mapping[int, Leader | None]) -> dict[BrokerId, list[str]]:
    """Return an unused id for each partition, by coordinator: describing it tests that it coordinates."""
    ids = defaultdict[BrokerId, list[str]](list)
    for partition, each in _ids_by_partition(prefix, len(leaders)).items():
        if (leader := leaders.get(partition)) is not None:
            ids[leader.broker_id].append(each)
    return ids


@lru_cache(maxsize=_PREFIXES_KEPT)
def _ids_by_partition(prefix: str, count: int) -> Mapping[int, str]:
    ids: dict[int, str] = {}
    for suffix in itertools.product(_LAST_CHARACTERS, repeat=3):
        if len(ids) == count:
            break
        ids.setdefault(partition_for(each := prefix + "".join(suffix), count), each)
    return ids


def _error_code(response: Any) -> ErrorCode:
    code: ErrorCode = response.error_code
    return code
