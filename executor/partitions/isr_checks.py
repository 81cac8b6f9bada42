"""Periodic checks of the ISRs of this broker's leaders, and the answers to their proposals.

All are checked twice in `replica.lag.time.max.ms`, those with a proposal to send again at every tick.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from sparklog.executor.loop.slices import in_slices
from sparklog.executor.partitions.isr_proposer import IsrProposer
from sparklog.executor.partitions.machine.events import IsrProposalAnswered, ProposeIsr, Ticked
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.loop.whole_seconds import whole_interval_after
from sparklog.node.metrics import server
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import Sample
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)

LINES_A_TICK: Final = 100
"""The most lines that are logged between two ticks; of others the number is."""


class IsrChecks(RoleListener[Replica]):
    """The ticks of the leaders of one broker."""

    def __init__(self, table: PartitionTable, proposer: IsrProposer, replica_lag_time_max_ms: int) -> None:
        self._table = table
        self._proposer = proposer
        self._interval_ms = max(1, replica_lag_time_max_ms // 2)
        self._due_ms = 0
        self._to_send_again: dict[Replica, None] = {}
        self._running: asyncio.Task[None] | None = None
        self._lines_left = LINES_A_TICK
        self._shrinks = self._expands = self._failures = 0
        """How often the controller has made an ISR smaller or larger as a leader asked, or has refused."""

    def propose(self, replica: Replica, proposal: ProposeIsr) -> None:
        def answered(answer: IsrProposalAnswered) -> None:
            self._measure(answer, before)
            leader = replica.leadership
            isr = None if leader is None else leader.isr
            replica.isr_proposal_answered(answer)
            if leader is not None and isr is not None:
                if answer.error_code is not ErrorCode.none:
                    self._log(
                        "%s: the controller answered an ISR proposal with %s", replica, answer.error_code.name
                    )
                elif leader.isr != isr:
                    self._log("%s: ISR %s, was %s", replica, sorted(leader.isr), sorted(isr))
            if replica.leadership is not None and replica.leadership.wants_tick:
                self._to_send_again[replica] = None

        before = frozenset() if replica.leadership is None else replica.leadership.isr
        self._log("%s: proposing the ISR %s", replica, [broker_id for broker_id, _ in proposal.new_isr])
        self._proposer.propose(replica.key, proposal, answered)

    def _log(self, line: str, *arguments: object) -> None:
        """Log a line, unless there have been many since the last tick: lines cost more than ISRs."""
        if self._lines_left > 0:
            logger.info(line, *arguments)
        self._lines_left -= 1

    def samples(self, now_ms: int) -> Iterator[Sample]:
        yield Sample(server.ISR_SHRINKS.of(), Kind.METER, self._shrinks)
        yield Sample(server.ISR_EXPANDS.of(), Kind.METER, self._expands)
        yield Sample(server.FAILED_ISR_UPDATES.of(), Kind.METER, self._failures)

    def _measure(self, answer: IsrProposalAnswered, before: frozenset[BrokerId]) -> None:
        if answer.error_code is not ErrorCode.none:
            self._failures += 1
        elif len(answer.isr) < len(before):
            self._shrinks += 1
        elif len(answer.isr) > len(before):
            self._expands += 1

    def deleted(self, replica: Replica) -> None:
        """Forget the replica's proposal."""
        self._to_send_again.pop(replica, None)

    @property
    def next_due_ms(self) -> int:
        """The time of the next check; in the past if one is due at the next tick."""
        return 0 if self._to_send_again else self._due_ms

    def take_due(self, now_ms: int) -> Sequence[Replica]:
        is_due = now_ms >= self._due_ms
        if is_due:
            self._due_ms = whole_interval_after(now_ms, self._interval_ms)
        due = tuple(self._table if is_due else self._to_send_again)
        self._to_send_again.clear()
        return due

    def tick(self, now_ms: int) -> None:
        """Begin to check the due leaders, unless the last check is still running."""
        if self._lines_left < 0:
            logger.info("%d lines more about ISRs of other partitions", -self._lines_left)
        self._lines_left = LINES_A_TICK
        if self._running is not None and self._running.done():
            self._running.result()
            self._running = None
        if self._running is None and (due := self.take_due(now_ms)):
            self._running = asyncio.get_running_loop().create_task(_check(due, now_ms))

    async def stop(self) -> None:
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)


async def _check(replicas: Sequence[Replica], now_ms: int) -> None:
    async for part in in_slices(replicas):
        for replica in part:
            replica.handle(Ticked(now_ms))
