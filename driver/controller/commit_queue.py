"""From decision to reply: append, replay, wait until a majority of voters has it, then reply, in that order.

While the voters flush, more decisions are made and appended; the voters' next fetch takes them all.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.loop.garbage import without_collections
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.protocol.types import LeaderEpoch, Offset

logger = logging.getLogger(__name__)


class DecisionLog(Protocol):
    """The log of decisions; each is one batch."""

    leader_epoch: LeaderEpoch

    @property
    def log_end_offset(self) -> Offset: ...

    def append(self, records: Sequence[MetadataRecord]) -> Offset:
        """Append the records; return the last one's offset."""


class _Uncommitted(NamedTuple):
    end_offset: Offset
    """The decision is committed when the high watermark reaches it."""
    image: MetadataImage
    reply: Any
    answer: Callable[[Any], None]


class CommitQueue:
    """The decisions of one controller that are appended but not yet committed."""

    def __init__(
        self,
        controller: Controller,
        log: DecisionLog,
        *,
        later: Callable[[Callable[[], None]], object],
        on_append: Callable[[], None],
        on_commit: Callable[[MetadataImage], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Append to `log`; `later` calls a function in a later turn of the loop."""
        self._controller = controller
        self._log = log
        self._later = later
        self._on_append = on_append
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._waiting: deque[_Uncommitted] = deque()
        self._high_watermark: Offset = 0
        self._closed = False

    def submit_parts(self, decide: Callable[[], ControllerResult], answer: Callable[[Any], None]) -> None:
        """Append a decision of several parts; other decisions may come between the parts."""
        with without_collections() as step:
            decision = decide()
            self.submit(decision, (lambda _: None) if decision.is_first_part else answer)
            step.lasting_count = len(decision.records)
        if decision.is_first_part and not self._closed:
            self._later(lambda: self.submit_parts(decide, answer))

    def submit(self, decision: ControllerResult, answer: Callable[[Any], None]) -> None:
        """Append a decision; call `answer` with its reply when it is committed.

        A decision without records is answered when everything that it may rest on is committed.
        """
        if self._closed:
            return
        if decision.records:
            try:
                last_offset = self._log.append(decision.records)
                self._controller.replay(decision.records, last_offset, self._log.leader_epoch)
            except Exception as error:  # the image and the log may differ now: nothing may follow
                self._fail(error)
                return
            self._on_append()
        end_offset = self._log.log_end_offset
        if end_offset <= self._high_watermark:
            answer(decision.reply)
            return
        self._waiting.append(_Uncommitted(end_offset, self._controller.image, decision.reply, answer))

    def high_watermark_moved(self, high_watermark: Offset) -> None:
        """Answer the decisions that end at or below the new high watermark."""
        self._high_watermark = high_watermark
        image: MetadataImage | None = None
        answers = []
        while self._waiting and self._waiting[0].end_offset <= high_watermark:
            waiting = self._waiting.popleft()
            image = waiting.image
            answers.append(waiting)
        if image is not None:
            self._on_commit(image)
        for waiting in answers:
            waiting.answer(waiting.reply)

    def close(self) -> None:
        """Append and answer nothing from now on."""
        self._closed = True
        self._waiting.clear()

    def _fail(self, error: BaseException) -> None:
        self.close()
        logger.critical("The metadata log cannot be written, the controller stops: %s", error, exc_info=error)
        self._on_failure(error)
