"""Transactions, as whoever coordinates them is asked: begun by an id, ended by an epoch, listed by a pattern.

Version 2 of transactions is required (KIP-890, Kafka 4.0): each has an epoch of its own, so that one that was
ended cannot be taken for the next one, and to end it again is harmless.
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

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.coordinators import CoordinatorKind, Coordinators
from sparklog.client.errors import UnknownTopicError
from sparklog.client.topic_descriptions import described_leaders
from sparklog.client.topics import Leader
from sparklog.client.transactions import (
    TransactionDescription,
    describe_transactions,
    list_transactions,
    transaction_description,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.partition_for import partition_for
from sparklog.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.types import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from sparklog.wire.apis import ApiKey
from sparklog.wire.negotiation import api_versions_requests

_FEATURE: Final = "transaction.version"
_NEEDED_LEVEL: Final = 2
_PREPARED_STATES: Final = ("PrepareCommit", "PrepareAbort")
_PREFIXES_KEPT: Final = 16
_LAST_CHARACTERS: Final = [chr(code) for code in range(ord("0"), ord("z") + 1)]
"""Java's hashes of ids that differ in these are consecutive, and so are their partitions."""
_NEEDED_VERSIONS: Final = {
    ApiKey.PRODUCE: 12,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
}


class TransactionsUnsupportedError(KafkaError):
    """The cluster has no transactions of the version that is needed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            ErrorCode.unsupported_version,
            f"the cluster cannot be written exactly once: {what}. It needs version 2 of transactions, which "
            "Kafka has since 4.0 (kafka-features.sh upgrade --feature transaction.version=2); or set the "
            "option deliveryGuarantee=atLeastOnce",
        )

    @property
    def retriable(self) -> bool:
        """Never: it takes an operator."""
        return False


class Transactions:
    """Asks the coordinators of `cluster`; the first call finds out whether they can what is needed."""

    def __init__(self, cluster: ClusterClient, coordinators: Coordinators) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._list_version: int | None = None
        """What of ListTransactions the cluster knows, once it was asked."""
        self._leaders: Mapping[int, Leader | None] | None = None
        """Who coordinated when that was asked last."""

    def initialize(self, transactional_id: str, timeout_ms: int) -> InitProducerIdResponse:
        """Become the producer of an id, whose transaction is aborted if one is open; errors are the caller's.

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
        """Do `initialize` without asking again; `check` comes first.

        Raises:
            KafkaError: the coordinator did not answer, and may yet do it; or it is to be asked again.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout=timedelta(milliseconds=timeout_ms)
        )
        return self._coordinators.ask_once(
            CoordinatorKind.TRANSACTION, transactional_id, request, _error_code
        )

    def end(
        self, transactions: Iterable[tuple[str, ProducerId, ProducerEpoch]], *, commit: bool
    ) -> dict[str, EndTxnResponse]:
        """End a transaction each of several ids; errors that are no reason to try again are the caller's.

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
        return self._coordinators.ask_all(CoordinatorKind.TRANSACTION, requests, _error_code, doing=doing)

    def described(
        self, prefix: str, states: Collection[str], named: Collection[str] = ()
    ) -> list[TransactionDescription]:
        """Return the transactions of ids that begin so, and of those named, that are in one of the states.

        Of ids that are not named some may be missing whose coordinator is just being replaced, if it may not
        be seen who that is.

        Raises:
            ApiTimeoutError: some broker could not be asked within `api_timeout_ms`.
            KafkaError: it is refused.
        """
        self.check()
        listed = self._cluster.retry("listing transactions", lambda: self._list(prefix, states))
        return self.describe(dict.fromkeys((*listed, *named)), states)

    def describe(self, ids: Collection[str], states: Collection[str]) -> list[TransactionDescription]:
        """Return the transactions of ids that are in one of the states.

        Raises:
            ApiTimeoutError: some coordinator could not be asked within `api_timeout_ms`.
            KafkaError: one tells neither of an id nor that there is none: what is taken for ended because
                nobody told of it would be aborted later, decided or not.
        """
        answers = self._coordinators.ask_all(
            CoordinatorKind.TRANSACTION,
            {each: DescribeTransactionsRequest(transactional_ids=(each,)) for each in ids},
            lambda response: response.transaction_states[0].error_code,
            doing="describing transactions",
        )
        described = [answers[each].transaction_states[0] for each in ids]
        for each in described:
            if each.error_code not in (ErrorCode.none, ErrorCode.transactional_id_not_found):
                raise KafkaError(
                    each.error_code, f"transactional id {each.transactional_id} is not described"
                )
        return [
            transaction_description(each)
            for each in described
            if each.error_code is ErrorCode.none and each.transaction_state in states
        ]

    def unmarked(self, ids: Sequence[str]) -> list[TopicPartition]:
        """Return where transactions that are decided have no marker yet; it is asked for once.

        Raises:
            KafkaError: some coordinator can't be asked.
        """
        coordinators = {each: self._coordinators.broker_of(CoordinatorKind.TRANSACTION, each) for each in ids}
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
        """Find out whether the cluster can what is needed, once.

        Raises:
            TransactionsUnsupportedError: it cannot.
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
                raise TransactionsUnsupportedError(f"it does not know {api_key.name} v{version}")
        levels = {each.name: each.max_version_level for each in getattr(response, "finalized_features", ())}
        if (level := levels.get(_FEATURE, 0)) < _NEEDED_LEVEL:
            raise TransactionsUnsupportedError(f"its {_FEATURE} is {level}")
        return int(known[int(ApiKey.LIST_TRANSACTIONS)])

    def _list(self, prefix: str, states: Collection[str]) -> list[str]:
        """Ask all who coordinate.

        Raises:
            KafkaError: LEADER_NOT_AVAILABLE or NOT_COORDINATOR (retriable) if somebody began or ceased to
                meanwhile, or before, and whoever tells who coordinates has not heard: what he coordinates may
                be in nobody's answer. Or it is refused.
        """
        assert self._list_version is not None, "check comes first"
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
        """Return who coordinates, by partition; nobody before the first transaction; None: it is a secret."""
        try:
            return described_leaders(self._cluster, TRANSACTION_STATE_TOPIC)
        except KafkaError as error:
            if error.error_code is ErrorCode.topic_authorization_failed:
                return None
            if error.error_code is not ErrorCode.unknown_topic_or_partition:
                raise
        # A broker that has just begun knows nothing, and waits before it tells that as Metadata.
        self._cluster.forget(TRANSACTION_STATE_TOPIC)
        try:
            return self._cluster.topic(TRANSACTION_STATE_TOPIC).leaders
        except UnknownTopicError:
            return {}


def _one_of_each_partition(prefix: str, leaders: Mapping[int, Leader | None]) -> dict[BrokerId, list[str]]:
    """Return an id that nobody has for each partition, by who coordinates it: whether he does is asked so."""
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
