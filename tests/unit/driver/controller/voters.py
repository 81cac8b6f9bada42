"""Voters for tests of the controller: the broker's replica of the metadata log, without the broker around it.

They announce themselves, vote, follow and fsync as brokers do, over real sockets and with real files, but
register nothing: so a test has the controller's brokers for itself.
"""

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.request import Listener as VoterListener
from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from sparklog.executor.api.quorum import QuorumHandlers
from sparklog.executor.metadata.machine.quorum_voter import FetchOutcome
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.executor.partitions.log_end import log_end
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.calling.channel import Channel
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import CONTROLLER_LISTENER
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.serving.listener import Listener, ListenerIdentity, Service
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC_ID, BrokerId
from tests.application_secret import CLUSTER_ADMISSION, SECRET

CONFIG = BrokerConfig.from_mapping({}, racks=1)
MAX_WAIT_MS = 200


class Disk:
    """What a voter leaves behind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory_id: UUID = uuid4()
        self.cluster_id: str | None = None


class Voters:
    """Voters in a thread of their own, one for each node id, that follow the controller at `port`."""

    def __init__(self, port: int, disks: Mapping[BrokerId, Disk]) -> None:
        self._port = port
        self._disks = dict(disks)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End them all; their disks stay."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._live())

    async def _live(self) -> None:
        voters = [asyncio.ensure_future(self._vote(node_id, disk)) for node_id, disk in self._disks.items()]
        await self._stopping.wait()
        for voter in voters:
            voter.cancel()
        await asyncio.gather(*voters, return_exceptions=True)

    async def _vote(self, node_id: int, disk: Disk) -> None:
        key = VoterKey(node_id, disk.directory_id)
        disk.path.mkdir(parents=True, exist_ok=True)

        def learn(cluster_id: str) -> None:
            disk.cluster_id = cluster_id

        replica = MetadataReplica.open(
            disk.path,
            CONFIG,
            key=key,
            cluster_id=disk.cluster_id,
            fetch_timeout_ms=2000,
            format_directories=learn,
            now_ms=monotonic_ms(),
        )
        handlers = QuorumHandlers(replica, partial(log_end, PartitionTable("PLAINTEXT")))
        listener = await Listener.start(
            "127.0.0.1",
            0,
            Service(apis=handlers.table(), admission=CLUSTER_ADMISSION),
            ListenerIdentity(name=CONTROLLER_LISTENER),
        )
        try:
            while True:
                with contextlib.suppress(KafkaError):
                    await self._follow(replica, key, listener.port)
                await asyncio.sleep(0.02)
        finally:
            await listener.close()
            await replica.close()

    async def _follow(self, replica: MetadataReplica, key: VoterKey, port: int) -> None:
        channel = await Channel.connect("127.0.0.1", self._port, "voter", login=SECRET.login)
        try:
            announced = False
            # As brokers do: on every connection, since it may be another controller than before.
            while not (announced and replica.voter.follows):
                announced = True
                listeners = (VoterListener(name=CONTROLLER_LISTENER, host="127.0.0.1", port=port),)
                answer = await channel.request(
                    AddRaftVoterRequest(
                        cluster_id=replica.cluster_id,
                        timeout=timedelta(seconds=1),
                        voter_id=key.node_id,
                        voter_directory_id=key.directory_id,
                        listeners=listeners,
                        ack_when_committed=False,
                    )
                )
                assert answer.error_code is ErrorCode.none, answer
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await replica.until(lambda: replica.voter.follows)
            while True:
                await self._fetch_once(replica, key, channel)
        finally:
            channel.close()

    async def _fetch_once(self, replica: MetadataReplica, key: VoterKey, channel: Channel) -> None:
        asked_in = replica.voter.leader_epoch
        response = await channel.request(_fetch_request(replica, key))
        partition = response.responses[0].partitions[0]
        leader = partition.current_leader
        outcome = replica.voter.fetch_answered(
            asked_in, leader.leader_id, leader.leader_epoch, monotonic_ms()
        )
        if outcome is not FetchOutcome.COUNTS:
            await replica.settled()
            return
        if partition.diverging_epoch.end_offset >= 0:
            replica.log.truncate_to(partition.diverging_epoch.end_offset)
        elif partition.records:
            replica.log.append_as_follower(partition.records, monotonic_ms())
            await asyncio.to_thread(replica.log.flush)
        replica.voter.appended(partition.high_watermark, replica.log.log_end_offset)


def _fetch_request(replica: MetadataReplica, key: VoterKey) -> Any:
    latest, high_watermark = replica.log.epochs.latest, replica.voter.high_watermark
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=replica.voter.leader_epoch,
        fetch_offset=replica.log.log_end_offset,
        last_fetched_epoch=-1 if latest is None else latest,
        partition_max_bytes=1 << 20,
        replica_directory_id=key.directory_id,
        high_watermark=-1 if high_watermark is None else high_watermark,
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=key.node_id),
        max_wait=timedelta(milliseconds=MAX_WAIT_MS),
        min_bytes=1,
        max_bytes=1 << 20,
        topics=(FetchTopic(topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
