"""The current leaders in answers to Produce and Fetch, which spare a client a Metadata request (KIP-951)."""

from typing import Any, Final
from uuid import UUID

from sparklog.executor.partitions.table import PartitionTable
from sparklog.protocol.errors import ErrorCode

_LEADER_UNKNOWN: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})


class CurrentLeaders:
    __slots__ = ("_leader", "_listener_name", "_node", "_table", "nodes")

    def __init__(self, table: PartitionTable, listener_name: str, leader: Any, node: Any) -> None:
        """`leader` and `node` are the entities of the answer's version; None where it has none.

        Brokers have the address of their listener of the same name: the client may reach no other, and
        must not learn of them.
        """
        self._table = table
        self._listener_name = listener_name
        self._leader = leader
        self._node = node
        self.nodes: dict[int, Any] = {}
        """Where the leaders that were named are."""

    def add(
        self, row: dict[str, Any], error_code: ErrorCode, topic: UUID | str | None, partition: int
    ) -> None:
        """Name the leader in the `row` of a partition that this broker does not lead."""
        if error_code not in _LEADER_UNKNOWN or self._leader is None:
            return
        registration = self._table.registration(topic, partition)
        if registration is None or registration.leader is None:
            return
        leader_id = registration.leader
        row["current_leader"] = self._leader(leader_id=leader_id, leader_epoch=registration.leader_epoch)
        found = self._table.endpoint(leader_id, self._listener_name)
        if found is not None and self._node is not None:
            endpoint, rack = found
            self.nodes[leader_id] = self._node(
                node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=rack
            )
