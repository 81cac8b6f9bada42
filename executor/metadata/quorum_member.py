"""A broker as a member of the metadata quorum, with its replica of the metadata log.

Order for the caller: `open` while the directories are locked, and listen for candidates and leaders;
`subscribe` the parts that act on metadata; then `run` and `follow` beside everything else; `follow` until the
last of the other logs is closed, so that the quorum has this broker for as long as it can; `close`.
"""

import asyncio
from collections.abc import Callable
from typing import Self

from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.machine.broker_lifecycle import BrokerDiskError
from sparklog.executor.logs.directories import DataDirectories
from sparklog.executor.loop.concurrency import until_first_ends
from sparklog.executor.metadata.follower import MetadataFollower
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.executor.metadata.publisher import MetadataPublisher, MetadataSubscriber
from sparklog.executor.metadata.voter_announcement import VoterAnnouncement
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.storage.files import is_disk_error
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerEpoch


class QuorumMember:
    """The metadata log on one broker. Made by `open`."""

    def __init__(
        self,
        replica: MetadataReplica,
        directories: DataDirectories,
        config: BrokerConfig,
        link: ControllerLink,
        broker_epoch: Callable[[], BrokerEpoch | None],
        on_caught_up: Callable[[int], None],
    ) -> None:
        self.replica = replica
        self._directories = directories
        self._link = link
        self._metadata_link = link.sibling(f"broker-{directories.node_id}-metadata", "metadata log")
        self._request_timeout_ms = config.broker_request_timeout_ms
        self._publisher = MetadataPublisher(replica, broker_epoch=broker_epoch, on_caught_up=on_caught_up)
        self._follower = MetadataFollower(
            replica,
            self._metadata_link,
            broker_epoch=broker_epoch,
            on_fetched=self._publisher.fetched,
            on_replaced=self._publisher.replaced,
            now_ms=monotonic_ms,
            request_timeout_ms=self._request_timeout_ms,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        )

    @classmethod
    async def open(
        cls,
        directories: DataDirectories,
        config: BrokerConfig,
        link: ControllerLink,
        broker_epoch: Callable[[], BrokerEpoch | None],
        on_caught_up: Callable[[int], None],
    ) -> Self:
        """Open the log, which is fetched over a link of its own.

        `on_caught_up` is called with the time at which a fetch was sent whose answer leaves nothing to apply.

        Raises:
            ForeignDirectoryError: there is a metadata log without a cluster id.
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        replica = await asyncio.to_thread(
            MetadataReplica.open,
            directories.metadata.path,
            config,
            key=VoterKey(directories.node_id, directories.metadata_id),
            cluster_id=directories.cluster_id,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            format_directories=directories.format,
            stop=directories.metadata.previous_stop,
            now_ms=wall_clock_ms(),
        )
        return cls(replica, directories, config, link, broker_epoch, on_caught_up)

    @property
    def cluster_id(self) -> str:
        """The cluster id, once this broker has joined."""
        assert self.replica.cluster_id is not None, "there is a leader, so there is a cluster"
        return self.replica.cluster_id

    def image(self) -> MetadataImage:
        """Return the image that the subscribers have applied, or are about to."""
        return self._publisher.image

    def subscribe(self, *subscribers: MetadataSubscriber) -> None:
        """Add subscribers of every image, after the existing ones."""
        self._publisher.subscribe(*subscribers)

    async def joined(self) -> None:
        """Return when this broker belongs to a cluster and knows a leader for its registration."""
        await self.replica.until(lambda: self.replica.voter.follows and self.replica.cluster_id is not None)

    async def registered(self, broker_epoch: BrokerEpoch) -> None:
        """Use the directories under the broker epoch, known from now on, and publish metadata."""
        await asyncio.to_thread(self._directories.note_running, broker_epoch)
        self._publisher.registered()

    def check_disk(self) -> None:
        """Refuse to go on with a metadata log whose disk has failed.

        Raises:
            BrokerDiskError: it has.
        """
        directory = self._directories.metadata
        if directory.failure is not None:
            raise BrokerDiskError(f"the directory of the metadata log, {directory.path}: {directory.failure}")

    async def run(self, endpoint: Endpoint) -> None:
        """Announce to the driver that this broker is reached at `endpoint`, and publish committed records.

        Raises:
            ForeignDirectoryError: the directories belong to another cluster than the driver's.
            KafkaError: the log cannot be replayed.
        """
        announcement = VoterAnnouncement(
            self.replica, self._link, endpoint, self._request_timeout_ms, monotonic_ms
        )
        await until_first_ends(announcement.run(), self._publisher.run())

    async def follow(self) -> None:
        """Keep the own log a copy of the leader's until cancelled.

        Raises:
            BrokerDiskError: the disk failed; nothing else is written there either.
            KafkaError: the log diverges from the leader's where it must not.
        """
        try:
            await until_first_ends(self._follower.run(), self._metadata_link.run())
        except KafkaError as error:
            if is_disk_error(error):
                directory = self._directories.metadata
                directory.fail(error)
                raise BrokerDiskError(f"the metadata log in {directory.path}: {error}") from error
            raise

    async def close(self) -> None:
        await self.replica.close()
