"""The traffic of the partitions that this broker leads: the means of the last whole five minutes.

The controller balances leaderships by it. Every partition is looked at, in slices; one counts if it was led
in the same leader epoch all the time. Those with the most bytes are reported, `REPORTED_PARTITIONS` at most,
beside the sums of all. Nothing is reported before the first five minutes are over.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from sparklog.executor.loop.slices import in_slices
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.clocks import monotonic_ms
from sparklog.node.metrics import server
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import Sample
from sparklog.protocol.types import LeaderEpoch

INTERVAL_S: Final = 300.0
REPORTED_PARTITIONS: Final = 100


class _Counts(NamedTuple):
    leader_epoch: LeaderEpoch
    bytes_in: int
    bytes_out: int


class _Rates(NamedTuple):
    bytes_in: float
    bytes_out: float


class PartitionTraffic:
    """A source of the registry; `run` keeps it up to date."""

    def __init__(self, table: PartitionTable, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._table = table
        self._now_ms = now_ms
        self._began_ms: int | None = None
        self._began: dict[Replica, _Counts] = {}
        """The counts of the leaders at the last look."""
        self._of_others: _Rates | None = None
        """The sum of the leaders that are not reported one by one; None before the first interval is over."""
        self._reported: dict[Replica, _Rates] = {}

    async def run(self) -> None:
        """Look at the leaders periodically, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL_S)

    async def look(self) -> None:
        """Take over the rates since the last look."""
        now_ms = self._now_ms()
        began, began_ms = self._began, self._began_ms
        found: dict[Replica, _Counts] = {}
        rates: list[tuple[Replica, _Rates]] = []
        async for part in in_slices(self._table):
            for replica in part:
                if replica.leadership is None or replica.leader_epoch is None:
                    continue
                now = found[replica] = _Counts(replica.leader_epoch, replica.bytes_in, replica.bytes_out)
                before = began.get(replica)
                if began_ms is None or before is None or before.leader_epoch != now.leader_epoch:
                    continue
                seconds = max(1, now_ms - began_ms) / 1_000
                taken, given = now.bytes_in - before.bytes_in, now.bytes_out - before.bytes_out
                if taken or given:
                    rates.append((replica, _Rates(taken / seconds, given / seconds)))
        self._began, self._began_ms = found, now_ms
        if began_ms is None:
            return
        self._reported = dict(heapq.nlargest(REPORTED_PARTITIONS, rates, key=lambda each: sum(each[1])))
        self._of_others = _sum(each for replica, each in rates if replica not in self._reported)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        if self._of_others is None:
            return
        led = {
            replica: rates
            for replica, rates in self._reported.items()
            if replica.leadership is not None and replica in self._table
        }
        # Without those that others lead by now: they count there.
        whole = _sum((self._of_others, *led.values()))
        yield Sample(server.LEADER_BYTES_IN.of(), Kind.GAUGE, whole.bytes_in)
        yield Sample(server.LEADER_BYTES_OUT.of(), Kind.GAUGE, whole.bytes_out)
        for replica, rates in led.items():
            topic, partition = replica.topic_partition
            tags = {"topic": topic, "partition": str(partition)}
            yield Sample(server.LEADER_BYTES_IN.of(**tags), Kind.GAUGE, rates.bytes_in)
            yield Sample(server.LEADER_BYTES_OUT.of(**tags), Kind.GAUGE, rates.bytes_out)


def _sum(rates: Iterable[_Rates]) -> _Rates:
    bytes_in = bytes_out = 0.0
    for each in rates:
        bytes_in, bytes_out = bytes_in + each.bytes_in, bytes_out + each.bytes_out
    return _Rates(bytes_in, bytes_out)
