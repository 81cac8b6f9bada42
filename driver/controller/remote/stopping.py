"""Carries out an orderly stop: asks brokers, tells the progress, saves the last metadata.

This module decides nothing (`machine.orderly_stop`). It runs beside the active controller, on its loop; the
store and brokers that do not answer hold up nothing else.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.orderly_stop import (
    METADATA_MS,
    AbortTransactions,
    End,
    Look,
    MakeReadOnly,
    OrderlyStop,
    SaveMetadata,
    StopEffect,
    StopFacts,
)
from sparklog.driver.controller.metadata_fetches import MetadataFetches
from sparklog.driver.controller.remote.cluster_look import ClusterLook
from sparklog.driver.controller.remote.controller_tier import ControllerTier
from sparklog.driver.controller.remote.metadata_store import PrefixLostError
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config.keys.controller_keys import READ_ONLY_KEY
from sparklog.node.metadata.image import MetadataImage, ResourceType
from sparklog.node.metadata.schemas import ConfigRecord
from sparklog.node.remote_log.object_store import StoreError
from sparklog.protocol.types import Offset

STEP_S: Final = 0.1
LOOK_PAUSE_S: Final = 0.15
PROGRESS_MS: Final = 1_000
NAMED: Final = 20
"""Partitions that a log line names at most."""

logger = logging.getLogger(__name__)


class StoppingController(Protocol):
    fetches: MetadataFetches
    image: MetadataImage

    @property
    def log_end_offset(self) -> Offset: ...

    def decide(self, decision: ControllerResult) -> None: ...


class Stopping:
    """The orderly stop of one controller's cluster; belongs to its loop, on which it begins at once."""

    def __init__(
        self,
        controller: StoppingController,
        tier: ControllerTier,
        look: ClusterLook,
        timeout_ms: int,
        on_ended: Callable[[], None],
    ) -> None:
        """`on_ended` is called once all is copied, or the time is over."""
        self._controller = controller
        self._tier = tier
        self._look = look
        self._machine = OrderlyStop(monotonic_ms(), timeout_ms)
        self._on_ended = on_ended
        self._read_only_at: Offset | None = None
        self._facts = StopFacts(False, None, {}, (), 0, False)
        self._said_ms = monotonic_ms()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._look.close()

    async def _run(self) -> None:
        logger.info("An orderly stop begins: all records are copied to %s first", self._tier.store.uri)
        try:
            ended = False
            while not ended and not self._is_lost():
                self._note(is_read_only=self._is_read_only())
                for effect in self._machine.step(self._facts, monotonic_ms()):
                    await self._carry_out(effect)
                    ended = ended or isinstance(effect, End)
                self._say_progress()
                if not ended:
                    await asyncio.sleep(STEP_S)
        except Exception:  # the cluster stops all the same
            logger.exception("The orderly stop has failed: brokers leave without further copies")
        finally:
            self._on_ended()

    async def _carry_out(self, effect: StopEffect) -> None:
        match effect:
            case MakeReadOnly():
                record = ConfigRecord(
                    resource_type=ResourceType.BROKER, resource_name="", name=READ_ONLY_KEY, value="true"
                )
                self._controller.decide(ControllerResult([record], None))
                self._read_only_at = self._controller.log_end_offset
            case Look():
                await asyncio.sleep(LOOK_PAUSE_S)
                looked = await self._look.look(self._controller.image)
                self._note(
                    transactions=looked.transactions,
                    logs=looked.logs,
                    unknown=looked.unknown,
                    looks=self._facts.looks + 1,
                )
            case AbortTransactions(transactions):
                logger.warning(
                    "%d open transactions are aborted: %s",
                    len(transactions),
                    _some([each.transactional_id for each in transactions]),
                )
                await self._look.abort(self._controller.image, transactions)
            case SaveMetadata(is_complete):
                try:
                    async with asyncio.timeout(METADATA_MS / 1_000):
                        await self._tier.save_last(is_copied=is_complete)
                    self._note(is_metadata_saved=True)
                except (StoreError, PrefixLostError, TimeoutError) as error:
                    logger.error("The last metadata is not copied: %s", error or "the store does not answer")
                    await asyncio.sleep(STEP_S)
            case End():
                self._say_end(effect)

    def _is_lost(self) -> bool:
        """Whether another application has the prefix, so that nothing of this one can be copied."""
        if self._tier.lost is not None:
            logger.error("Nothing is copied: %s", self._tier.lost)
        return self._tier.lost is not None

    def _is_read_only(self) -> bool:
        if self._read_only_at is None:
            return False
        known = self._controller.fetches.known_offsets
        live = [each for each, broker in self._controller.image.brokers.items() if not broker.fenced]
        return all(known.get(each, 0) >= self._read_only_at for each in live)

    def _say_progress(self) -> None:
        now_ms = monotonic_ms()
        if now_ms - self._said_ms >= PROGRESS_MS:
            self._said_ms = now_ms
            logger.info("Stopping: %s", self._machine.progress(self._facts))

    def _say_end(self, end: End) -> None:
        uri = self._tier.store.uri
        if not end.not_copied and end.is_metadata_saved:
            logger.info("All records and the metadata are in %s", uri)
        for partition in end.not_copied[:NAMED]:
            ends = self._facts.logs.get(partition)
            logger.error(
                "%s is not copied to %s %s: what follows is lost with the brokers' disks",
                partition,
                uri,
                "" if ends is None else f"from offset {ends.tiered_end_offset} to {ends.log_end_offset}",
            )
        if len(end.not_copied) > NAMED:
            logger.error("%d further partitions are not copied to %s", len(end.not_copied) - NAMED, uri)
        if not end.is_metadata_saved:
            logger.error("The last changes of the metadata are not copied to %s", uri)

    def _note(self, **known: object) -> None:
        self._facts = replace(self._facts, **known)  # type: ignore[arg-type]


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
