"""A client's machine on which coroutines ask brokers, as production's handlers are asked."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId
from tests.simulation.async_loop import AsyncLoop, set_running_loop
from tests.simulation.clients import REQUEST_TIMEOUT_MS, RETRY_MS, ClientProcess
from tests.simulation.network import Link
from tests.simulation.serving import ApiRequest

if TYPE_CHECKING:
    from tests.simulation.cluster import World

RETRIABLE: Final = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.kafka_storage_error,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.unstable_offset_commit,
        ErrorCode.operation_not_attempted,
    }
)
_LATEST_MS: Final = 2_500
"""By how much a copy of a request may be late."""


class Answered(NamedTuple):
    """What came of a request in the end."""

    response: Any
    error_code: ErrorCode
    may_come_again: bool
    """Whether it was sent more than once, so that a broker may see it when it has long been answered."""


class AsyncClient(ClientProcess):
    """A client's process with a loop."""

    def __init__(self, world: "World") -> None:
        super().__init__(world, "client")
        self.loop: Final = AsyncLoop(self)

    def run(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        set_running_loop(self.loop)
        try:
            super().run(action, arguments)
        finally:
            set_running_loop(None)

    async def sleep(self, within_ms: int) -> None:
        """Wait for a while."""
        await asyncio.sleep((1 + self.scheduler.random.randrange(within_ms)) / 1000)

    async def ask(self, broker_id: BrokerId, request: ApiRequest) -> Any:
        """Return what a broker answers, None if nothing came back."""
        answered = self.loop.create_future()

        def take(response: Any) -> None:
            if not answered.done():
                answered.set_result(response)

        self.link(broker_id).request(request, REQUEST_TIMEOUT_MS, take)
        return await answered

    async def ask_until_answered(
        self,
        topic: str,
        partition_of: Callable[[int], int],
        request: ApiRequest,
        error_of: Callable[[Any], ErrorCode],
        *,
        copies: float = 0.0,
        gives_up: float = 0.0,
    ) -> Answered:
        """Ask whoever leads a partition until the answer is one that does not change.

        `partition_of` is given how many partitions the topic has. Of some requests, `copies`, another one
        arrives by another connection, which may be much later. After some failures, `gives_up`, it is not
        asked again.
        """
        random = self.scheduler.random
        sent = 0
        while True:
            known = None if self.image is None else self.image.topics.by_name.get(topic)
            leader = None if known is None else known.partitions[partition_of(len(known.partitions))].leader
            if leader is not None:
                sent += 1
                if random.random() < copies:
                    sent += 1
                    self.after(random.randrange(_LATEST_MS), self._send_copy, leader, request)
                response = await self.ask(leader, request)
                error_code = ErrorCode.network_exception if response is None else error_of(response)
                if error_code not in RETRIABLE:
                    return Answered(response, error_code, sent > 1)
                if random.random() < gives_up:
                    return Answered(None, error_code, True)
                if error_code is ErrorCode.concurrent_transactions:
                    await self.sleep(RETRY_MS // 2)
                    continue
            self.refresh()
            await self.sleep(2 * RETRY_MS)

    def send(self, topic: str, partition: int, request: ApiRequest) -> None:
        """Send a request to whoever leads a partition, and wait for nothing."""
        found = self.find(topic, partition)
        if found is not None and found[1].leader is not None:
            self._send_copy(found[1].leader, request)

    def _send_copy(self, broker_id: BrokerId, request: ApiRequest) -> None:
        link = Link(self, f"broker-{broker_id}")
        link.request(request, REQUEST_TIMEOUT_MS, lambda _: link.close())
