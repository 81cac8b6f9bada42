"""One broker: its parts, the order in which they apply metadata, and the order of their end.

The order of a start: lock the directories; join the metadata quorum, so that a driver can lead it, and load
the logs meanwhile; once there is a leader, bind the listeners, register their ports, replay the metadata log
up to the registration, ask to be unfenced, and answer clients, which never see an empty cluster.

The order of an end: hand leaderships over (controlled shutdown), stop listening, flush and close the logs,
write the clean-shutdown markers, leave the quorum, release the locks. A broker that was refused or replaced,
or whose metadata cannot be replayed, has nothing to hand over and does the rest.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from sparklog.executor.api.listeners.client_listeners import ClientListeners
from sparklog.executor.api.listeners.quorum_listener import QuorumListener
from sparklog.executor.api.services import BrokerServices
from sparklog.executor.control.broker_life import BrokerLife
from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.machine.broker_lifecycle import BrokerState
from sparklog.executor.control.senders import Senders
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.logs.directories import DataDirectories
from sparklog.executor.loop.concurrency import end, result_of, until_first_ends
from sparklog.executor.metadata.quorum_member import QuorumMember
from sparklog.executor.monitoring.broker_monitoring import BrokerMonitoring
from sparklog.executor.replicas import ClusterMembership, ControllerRequests, Replicas
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.quotas.request_quotas import RequestQuotas
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.protocol.types import BrokerId


@dataclass(eq=False, kw_only=True)
class Broker:
    """A Kafka broker on the running asyncio loop; its `life` says where it is in it, and ends it.

    Listeners on every interface are advertised under `host_name`, by which others reach this host.
    """

    node_id: BrokerId
    rack: str | None
    controller: tuple[str, int]
    secret: ApplicationSecret
    config: BrokerConfig
    directories: Sequence[Path]
    host_name: str
    on_state: Callable[[BrokerState], None] = lambda state: None
    owner_epoch: int | None = None  # of this application in the object store of the tier
    ids_per_rack: int | None = None  # that are counted rack by rack, for new directories

    def __post_init__(self) -> None:
        self.config = self.config.with_identity(self.node_id, self.rack)
        self.life = BrokerLife(self.node_id, self.config, self.on_state)
        self.endpoints: tuple[Endpoint, ...] = ()
        """The advertised addresses; empty until the listeners are bound."""
        self.image: Callable[[], MetadataImage] = lambda: EMPTY_IMAGE
        """Returns this broker's metadata image."""

    async def run(self) -> None:
        """Start, serve until told to leave, and leave; returns after a clean shutdown.

        Raises:
            ForeignDirectoryError: (storage) a directory is another's, or not of the driver's cluster.
            DirectoryLockedError: (storage) a live process holds one; `run` may be called again.
            RegistrationRefusedError: the controller refuses this broker for good.
            BrokerReplacedError: another incarnation has its place.
            BrokerDiskError: no log directory is left, or that of the metadata log failed.
            KafkaError: the metadata log cannot be replayed or written, or a disk failed at the start.
        """
        link = ControllerLink.of_broker(self.controller, self.node_id, self.config, self.secret)
        self.life.begin(link)
        places = self.directories, self.config.metadata_directory
        directories = await asyncio.to_thread(DataDirectories.open, *places, self.node_id, self.ids_per_rack)
        try:
            async with AsyncExitStack() as closing:
                await self._run(directories, link, closing)
                self.life.enter(BrokerState.SHUTTING_DOWN)
        finally:
            await asyncio.to_thread(directories.close)
            self.life.enter(BrokerState.NOT_RUNNING)
        self.life.raise_failure()

    async def _run(self, directories: DataDirectories, link: ControllerLink, closing: AsyncExitStack) -> None:
        """Make the parts and run them until one ends; `closing` ends them in reverse order."""
        node_id, config, life, host = self.node_id, self.config, self.life, self.host_name
        budget = await asyncio.to_thread(directories.descriptor_budget)
        senders = Senders(link, node_id, life.broker_epoch, config)
        closing.push_async_callback(senders.close)
        suspicions = BrokerSuspicions(asyncio.get_running_loop())
        replicas = Replicas(
            ClusterMembership(node_id, life.broker_epoch, life.holds_lease, self.secret, self.owner_epoch),
            ControllerRequests(
                isr_proposer=senders.alter_partition,
                assign_directory=senders.assign_directories.assign,
                new_producer_id=senders.producer_id_blocks.next,
            ),
            directories.logs,
            config,
            suspicions,
            on_directory_failed=lambda failed: life.directory_failed(failed, directories.needs(failed)),
        )
        quorum = await QuorumMember.open(directories, config, link, life.broker_epoch, life.caught_up)
        closing.push_async_callback(quorum.close)
        quorum.subscribe(suspicions, *replicas.subscribers, life)
        self.image = quorum.image
        monitor = BrokerMonitoring(link, life, quorum, replicas, budget)
        listener = await QuorumListener.start(quorum, replicas, config, host, budget, monitor, self.secret)
        closing.push_async_callback(listener.close)
        # This broker stays in the quorum until its logs are closed.
        following = asyncio.ensure_future(quorum.follow())
        closing.push_async_callback(end, following)
        loading = asyncio.ensure_future(replicas.start())
        last = (replicas.shutdown, directories.write_clean_shutdown)
        closing.push_async_callback(life.shut_down, loading, *last)

        async def serve() -> None:
            """Wait for a leader and for the logs, then serve until shutdown."""
            if not (await life.lasts_until(quorum.joined()) and await life.lasts_until(result_of(loading))):
                return
            quorum.check_disk()
            services = BrokerServices(
                cluster_id=quorum.cluster_id,
                node_id=node_id,
                config=config,
                image=quorum.image,
                replicas=replicas,
                quotas=RequestQuotas(config.quota_windows),
                suspicions=suspicions,
                senders=senders,
                monitoring=monitor,
                secret=self.secret,
            )
            listeners = await ClientListeners.start(config, host, services, budget, directories.metadata.path)
            closing.push_async_callback(listeners.close)
            quorum.subscribe(listeners)
            self.endpoints = listeners.endpoints
            lying = directories.log_ids, directories.previous_broker_epoch
            identity = life.new_incarnation(quorum.cluster_id, self.endpoints, *lying)
            live = life.live(identity, quorum.registered, lambda: replicas.reports.undeclared > 0)
            await until_first_ends(live, replicas.run(), monitor.run())

        links = link.run(), senders.run()
        await until_first_ends(serve(), quorum.run(listener.endpoint), *links, result_of(following))
