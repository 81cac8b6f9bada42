"""The requests of an orderly stop to brokers: open transactions, the ends of logs, fencing of producers.

All of it is Kafka's protocol: ListTransactions and InitProducerId as Admin.listTransactions and
Admin.fenceProducers send them, ListOffsets with the times -1 (as Kafka's debugging consumer, whose answer
is the log's end) and -5 (KIP-1005: the last offset in the tier).
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest

from sparklog.driver.controller.machine.orderly_stop import LogEnds, OpenTransaction, Partition
from sparklog.driver.controller.quorum.broker_channels import BrokerChannels
from sparklog.node.calling.list_offsets_request import DEBUG_CONSUMER, AskedOffset, list_offsets_request
from sparklog.node.config import BrokerConfig, ConfigError, topic_config
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.node.storage.results import LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, Offset

_ONGOING: Final = "Ongoing"
_OPEN_STATES: Final = (_ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_FENCED_TIMEOUT: Final = timedelta(minutes=1)
"""The transaction time-out that a fenced id has until its producer comes back."""


class Looked(NamedTuple):
    transactions: tuple[OpenTransaction, ...] | None
    """None if a coordinator did not answer."""
    logs: Mapping[Partition, LogEnds]
    unknown: tuple[Partition, ...]
    """Tiered partitions without an answer."""


class _AskedBroker(NamedTuple):
    key: BrokerId
    host: str
    port: int


class ClusterLook:
    def __init__(self, channels: BrokerChannels, config: BrokerConfig) -> None:
        self._channels = channels
        self._config = config

    async def look(self, image: MetadataImage) -> Looked:
        """Ask all live brokers."""
        wanted, leaderless = self._tiered(image)
        transactions, ends = await asyncio.gather(
            self._open_transactions(image),
            asyncio.gather(
                *(self._log_ends(image, leader, partitions) for leader, partitions in wanted.items())
            ),
        )
        logs: dict[Partition, LogEnds] = {}
        for found in ends:
            logs |= found
        every = [partition for partitions in wanted.values() for partition in partitions]
        return Looked(transactions, logs, (*leaderless, *(each for each in every if each not in logs)))

    async def abort(self, image: MetadataImage, transactions: Iterable[OpenTransaction]) -> None:
        """Fence the producers of transactions, which aborts them."""
        for each in transactions:
            request = InitProducerIdRequest(
                transactional_id=each.transactional_id,
                transaction_timeout=_FENCED_TIMEOUT,
            )
            await self._ask(image, each.coordinator, request)

    def close(self) -> None:
        self._channels.close()

    def _tiered(self, image: MetadataImage) -> tuple[dict[BrokerId, list[Partition]], list[Partition]]:
        config = with_dynamic(self._config, image.broker_configs(None), {})
        wanted: defaultdict[BrokerId, list[Partition]] = defaultdict(list)
        leaderless = []
        for name, topic in image.topics.by_name.items():
            try:
                log = topic_config(config, image.topic_configs(name)).log_config()
            except ConfigError:  # of another version of sparklog: leaders ignore it, too
                continue
            if not log.remote_storage_enable or log.remote_copy_disable:
                continue
            for number, partition in topic.partitions.items():
                if partition.leader is None:
                    leaderless.append(Partition(name, number))
                else:
                    wanted[partition.leader].append(Partition(name, number))
        return dict(wanted), leaderless

    async def _log_ends(
        self, image: MetadataImage, leader: BrokerId, partitions: list[Partition]
    ) -> dict[Partition, LogEnds]:
        ends = await self._offsets(image, leader, partitions, LATEST_TIMESTAMP)
        tiered = await self._offsets(image, leader, partitions, LATEST_TIERED_TIMESTAMP)
        return {
            partition: LogEnds(end, tiered[partition] + 1)
            for partition, end in ends.items()
            if partition in tiered
        }

    async def _offsets(
        self, image: MetadataImage, leader: BrokerId, partitions: list[Partition], timestamp: int
    ) -> dict[Partition, Offset]:
        request = list_offsets_request(
            (AskedOffset(partition.topic, partition.number, timestamp) for partition in partitions),
            replica_id=DEBUG_CONSUMER,
            timeout_ms=10_000,
        )
        response = await self._ask(image, leader, request)
        if response is None:
            return {}
        return {
            Partition(topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if each.error_code is ErrorCode.none
        }

    async def _open_transactions(self, image: MetadataImage) -> tuple[OpenTransaction, ...] | None:
        if TRANSACTION_STATE_TOPIC not in image.topics.by_name:
            return ()
        brokers = [each for each, broker in image.brokers.items() if not broker.fenced]
        request = ListTransactionsRequest(state_filters=_OPEN_STATES)
        answers = await asyncio.gather(*(self._ask(image, each, request) for each in brokers))
        found = []
        prefixes = self._config.sparklog_two_phase_commit_transactional_id_prefixes
        for broker_id, answer in zip(brokers, answers, strict=True):
            if answer is None or answer.error_code is not ErrorCode.none:
                return None
            found += [
                OpenTransaction(
                    each.transactional_id,
                    broker_id,
                    is_two_phase=each.transactional_id.startswith(prefixes),
                    is_ongoing=each.transaction_state == _ONGOING,
                )
                for each in answer.transaction_states
            ]
        return tuple(found)

    async def _ask(self, image: MetadataImage, broker_id: BrokerId, request: Any) -> Any | None:
        registration = image.brokers.get(broker_id)
        if registration is None or registration.fenced:
            return None
        endpoint: Endpoint = (
            registration.endpoint(self._config.inter_broker_listener) or registration.listeners[0]
        )
        try:
            broker = _AskedBroker(broker_id, endpoint.host, endpoint.port)
            return await self._channels.request(broker, request)
        except (KafkaError, OSError):
            return None
