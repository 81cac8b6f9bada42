"""The announcements of this broker to the driver as a voter, with its directory id and endpoint.

Rules kept: once on every connection to the driver, since it may be another driver than before, and as the
first request there, since a controller that does not lead closes connections at the next one; and every
second while no leader is heard from, since one, or its effect, may be lost.

Source: AddRaftVoter of KIP-853, by which a replica offers itself as a voter.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest, Listener

from sparklog.executor.control.controller_link import ControllerLink, ControllerUnreachableError
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.node.endpoints import Endpoint
from sparklog.node.loop.whole_seconds import whole_second_after
from sparklog.node.storage import ForeignDirectoryError
from sparklog.protocol.errors import ErrorCode

MIN_PAUSE_S: Final = 0.5

logger = logging.getLogger(__name__)


class VoterAnnouncement:
    def __init__(
        self,
        replica: MetadataReplica,
        link: ControllerLink,
        endpoint: Endpoint,
        request_timeout_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        """`endpoint` is the address at which candidates and leaders reach this broker."""
        self._replica = replica
        self._link = link
        self._endpoint = endpoint
        self._request_timeout_ms = request_timeout_ms
        self._now_ms = now_ms
        self._connected = asyncio.Event()
        link.when_connected(self._connected.set)

    async def run(self) -> None:
        """Announce this broker whenever it is due, until cancelled.

        Raises:
            ForeignDirectoryError: the directories belong to another cluster than the driver's.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(whole_second_after(loop.time() + MIN_PAUSE_S)):
                    await self._connected.wait()
            except TimeoutError:
                if self._replica.voter.hears_leader(self._now_ms()) or not self._link.is_connected:
                    continue
            self._connected.clear()
            try:
                response = await self._link.request(self._request(), self._request_timeout_ms)
            except ControllerUnreachableError as error:
                logger.info("The driver did not answer the announcement: %s", error)
                continue
            self._answered(response)

    def _request(self) -> Any:
        key, endpoint = self._replica.voter.key, self._endpoint
        return AddRaftVoterRequest(
            cluster_id=self._replica.cluster_id,
            timeout=timedelta(milliseconds=self._request_timeout_ms),
            voter_id=key.node_id,
            voter_directory_id=key.directory_id,
            listeners=(Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port),),
            ack_when_committed=False,
        )

    def _answered(self, response: Any) -> None:
        if response.error_code is ErrorCode.inconsistent_cluster_id:
            raise ForeignDirectoryError(
                response.error_message or f"the driver is not of cluster {self._replica.cluster_id}"
            )
        if response.error_code is not ErrorCode.none:
            logger.info(
                "The driver did not take the announcement: %s %s",
                response.error_code.name,
                response.error_message or "",
            )
