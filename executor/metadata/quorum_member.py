"""A broker's part in the metadata quorum, put together: replica, listener, announcement, fetches.

Order for the caller: `start` while the directories are locked; then `announce`, `follow` and `publish`
beside everything else; `follow` until the last of the other logs is closed, so that the quorum has this
broker for as long as it can; `close`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Self

from executor.api.quorum import QuorumHandlers
from executor.control.controller_link import ControllerLink
from executor.logs.directories import DataDirectories
from executor.metadata.follower import MetadataFollower
from executor.metadata.metadata_replica import MetadataReplica
from executor.metadata.publisher import MetadataPublisher
from executor.metadata.voter_announcement import VoterAnnouncement
from sparklog.clocks import wall_clock_ms
from sparklog.config import BrokerConfig
from sparklog.endpoints import CONTROLLER_LISTENER, Endpoint
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.image import MetadataImage
from sparklog.metadata_log.machine.log_position import LogPosition
from sparklog.metadata_log.machine.voter_set import VoterKey
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch
from sparklog.wire.connection_quotas import ConnectionQuotas
from sparklog.wire.descriptors import DescriptorBudget
from sparklog.wire.server import Listener

__all__ = ["QuorumMember"]


class QuorumMember:
    """The metadata log on one broker. Made by `start`."""

    def __init__(
        self,
        replica: MetadataReplica,
        listener: Listener,
        announcement: VoterAnnouncement,
        follower: MetadataFollower,
        publisher: MetadataPublisher,
    ) -> None:
        self._replica = replica
        self._listener = listener
        self._announcement = announcement
        self._follower = follower
        self._publisher = publisher

    @classmethod
    async def start(
        cls,
        directories: DataDirectories,
        node_id: BrokerId,
        config: BrokerConfig,
        host_name: str,
        *,
        link: ControllerLink,
        metadata_link: ControllerLink,
        broker_epoch: Callable[[], BrokerEpoch | None],
        publish: Callable[[MetadataImage, MetadataDelta], Awaitable[None]],
        on_caught_up: Callable[[int], None],
        log_end: Callable[[str, int, LeaderEpoch], LogPosition],
        descriptors: DescriptorBudget,
        now_ms: Callable[[], int],
    ) -> Self:
        """Open the log and listen for candidates and leaders.

        Raises:
            ForeignDirectoryError: there is a metadata log of which nothing says whose it is.
            KafkaError: KAFKA_STORAGE_ERROR.
            OSError: the address cannot be listened on.
        """
        replica = await asyncio.to_thread(
            MetadataReplica.open,
            directories.metadata.path,
            config,
            key=VoterKey(node_id, directories.metadata_id),
            cluster_id=directories.cluster_id,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            format_directories=directories.format,
            stop=directories.metadata.previous_stop,
            now_ms=wall_clock_ms(),
        )
        try:
            handlers = QuorumHandlers(replica, log_end)
            listener, endpoint = await _listen(handlers, config, host_name, descriptors)
        except BaseException:
            await replica.close()
            raise
        handlers.endpoint = endpoint
        timeout_ms = config.controller_quorum_request_timeout_ms
        publisher = MetadataPublisher(
            replica,
            node_id=node_id,
            broker_epoch=broker_epoch,
            publish=publish,
            on_caught_up=on_caught_up,
        )
        follower = MetadataFollower(
            replica,
            metadata_link,
            broker_epoch=broker_epoch,
            on_fetched=publisher.fetched,
            on_replaced=publisher.replaced,
            now_ms=now_ms,
            request_timeout_ms=timeout_ms,
        )
        announcement = VoterAnnouncement(replica, link, endpoint, timeout_ms, now_ms)
        return cls(replica, listener, announcement, follower, publisher)

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to; None while they are blank."""
        return self._replica.cluster_id

    async def joined(self) -> None:
        """Return when this broker belongs to a cluster and knows a leader with whom to register."""
        await self._replica.until(lambda: self._replica.voter.follows and self.cluster_id is not None)

    def connected(self) -> None:
        """The link to the driver has a new connection."""
        self._announcement.connected()

    def registered(self) -> None:
        """The broker epoch is known now."""
        self._publisher.registered()

    async def follow(self) -> None:
        """Keep the own log a copy of the leader's until cancelled.

        Raises:
            KafkaError: the disk failed, or the log parts from the leader's where it must not.
        """
        await self._follower.run()

    async def announce(self) -> None:
        """Announce this broker to the driver until cancelled.

        Raises:
            ForeignDirectoryError: the directories belong to another cluster than the driver's.
        """
        await self._announcement.run()

    async def publish(self) -> None:
        """Publish what is committed until cancelled.

        Raises:
            KafkaError: the log cannot be replayed.
        """
        await self._publisher.run()

    async def close(self) -> None:
        """Stop listening, flush and close the log."""
        await self._listener.close()
        await self._replica.close()


async def _listen(
    handlers: QuorumHandlers, config: BrokerConfig, host_name: str, descriptors: DescriptorBudget
) -> tuple[Listener, Endpoint]:
    """Listen where brokers reach each other, at a free port; return how to reach it."""
    bound = next(each for each in config.listeners if each.name == config.inter_broker_listener)
    (advertised,) = config.advertised_endpoints((bound,), host_name)
    listener = await Listener.start(
        bound.host,
        0,
        handlers.table(),
        name=CONTROLLER_LISTENER,
        settings=config.socket_settings(),
        quotas=ConnectionQuotas(descriptors=descriptors),
        reserved=True,
    )
    return listener, replace(advertised, name=CONTROLLER_LISTENER, port=listener.port)
