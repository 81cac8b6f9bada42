"""Fetch and FetchSnapshot, by which brokers follow the metadata log, and DescribeQuorum."""

from collections.abc import Sequence
from typing import Final

from sparklog.driver.controller.metadata_fetches import MetadataFetches
from sparklog.driver.controller.quorum.description import describe_quorum_response
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.node.clocks import monotonic_ms
from sparklog.node.endpoints import Endpoint
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.protocol.codec.versions import upgrade
from sparklog.protocol.errors import ErrorCode, KafkaError

_FIRST_FETCH_VERSION: Final = 13
"""The first version with topic ids; the metadata log cannot be fetched by name."""


class MetadataLogHandlers:
    def __init__(self, fetches: MetadataFetches, quorum: QuorumLeader, endpoints: Sequence[Endpoint]) -> None:
        """`quorum` is the leader that answers, `endpoints` are its listeners."""
        self._fetches = fetches
        self._quorum = quorum
        self._endpoints = endpoints

    def fetch(self, request: Request) -> Response | Deferred:
        """Answer a Fetch of the metadata log, at once or when there is more of it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: its version is older, so a client asks for records.
        """
        if request.api_version < _FIRST_FETCH_VERSION:
            raise KafkaError(
                ErrorCode.not_leader_or_follower,
                f"{request.connection.peer} asks here for FETCH by name, which brokers serve",
            )
        return self._fetches.fetch(upgrade(request.body), monotonic_ms())

    def fetch_snapshot(self, request: Request) -> Response:
        return self._fetches.fetch_snapshot(upgrade(request.body), monotonic_ms())

    def describe_quorum(self, request: Request) -> Response:
        return describe_quorum_response(
            self._quorum,
            upgrade(request.body),
            endpoints=self._endpoints,
            log_end_offset=self._fetches.log_end_offset,
            now_ms=monotonic_ms(),
        )
