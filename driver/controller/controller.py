"""The controller: requests in, metadata records and replies out (skeleton)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from driver.controller.decision import Caller, Decision
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset

if TYPE_CHECKING:
    from sparklog.config import BrokerConfig
    from sparklog.metadata.image import MetadataImage

__all__ = ["Controller"]


class Controller:
    """The state of the cluster as decided so far, and the rules by which it changes."""

    def __init__(
        self,
        cluster_id: str,
        config: BrokerConfig,
        new_topic_id: Callable[[], UUID],
        image: MetadataImage,
    ) -> None:
        raise NotImplementedError

    def handle(self, request: Any, now_ms: int, caller: Caller) -> Decision:
        raise NotImplementedError

    def tick(self, now_ms: int) -> Decision:
        raise NotImplementedError

    def broker_gone(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> Decision:
        raise NotImplementedError

    def replay(self, records: Sequence[Any], base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        raise NotImplementedError
