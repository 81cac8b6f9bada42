"""Every partition replica of this broker.

Order for callers: `start()` loads the logs of all directories; then `apply_metadata` for every image, in
order, one at a time; requests may be handled from the first image on. `tick` runs every few hundred
milliseconds. `shutdown()` stops fetchers, flushes, writes checkpoints and clean-shutdown markers.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from executor.replication.isr_proposer import IsrProposer
from sparklog.types import BrokerId


class Replicas:
    """All replicas of one broker, and the handlers of the requests that touch them."""

    def __init__(
        self,
        node_id: BrokerId,
        broker_epoch: Callable[[], int],
        directories: Sequence[Any],
        broker_config: Any,
        isr_proposer: IsrProposer,
        loop: asyncio.AbstractEventLoop,
        *,
        inter_broker_listener_name: str = "PLAINTEXT",
    ) -> None: ...

    async def start(self, now_ms: int) -> None:
        """Load every log of every directory, off the loop."""

    async def apply_metadata(self, image: Any, delta: Any) -> None:
        """Make this broker's replicas what `image` says; `delta` names what changed since the last call."""

    def handle_produce(self, request: Any) -> Any: ...

    def handle_fetch(self, request: Any) -> Any: ...

    def handle_list_offsets(self, request: Any) -> Any: ...

    def handle_offset_for_leader_epoch(self, request: Any) -> Any: ...

    def handle_delete_records(self, request: Any) -> Any: ...

    def handle_describe_log_dirs(self, request: Any) -> Any: ...

    def tick(self, now_ms: int) -> None:
        """Check ISRs, start maintenance that is due; returns at once."""

    def stop_leading(self) -> None:
        """Refuse produces and stop counting acknowledgements: the lease on leadership has run out."""

    async def shutdown(self) -> None:
        """Stop fetching and serving, flush every log, write checkpoints and clean-shutdown markers."""
