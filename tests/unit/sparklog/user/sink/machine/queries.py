"""Spark's part: a query's runs, whose tasks are tried again, killed, late, and whose drivers die or hang."""

from collections.abc import Callable, Generator
from random import Random
from typing import Any

from sparklog.user.sink.machine.errors import (
    ContestedSinkError,
    DeciderFencedError,
    OlderCheckpointError,
    RunOverError,
    SinkError,
    SupersededRunError,
)
from sparklog.user.sink.machine.names import SinkId, SinkKind
from sparklog.user.sink.machine.protocols import Abort, Commit, Decider, SinkBatch
from sparklog.user.sink.machine.steps import Protocol
from sparklog.user.sink.machine.verdicts import Verdict, verdict_on_task
from tests.unit.sparklog.user.sink.machine.coordinated import Coordinated, FencedError

Turns = Generator[None, None, Any]
"""Something that goes on a little each time it is its turn."""

QUERY = SinkId(SinkKind.QUERY, "q")
ROWS = 6
_TOLD = (ContestedSinkError, OlderCheckpointError, RunOverError, SupersededRunError)
"""Why a run ends that is not the only one; anything else is a failure of the sink."""


class Runs:
    """All that goes on at a time: drivers, tasks, and what is left of those that are thought to be dead."""

    def __init__(self, cluster: Coordinated, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.going_on: list[Turns] = []
        self.checkpoint = 0
        """The first batch that Spark does not know to be done."""
        self._processes = 0

    def turn(self) -> None:
        actor = self.random.choice(self.going_on)
        try:
            next(actor)
        except StopIteration:
            self.going_on.remove(actor)

    def task(self, run_id: str, batch_id: int, process: str, rows: tuple[Any, ...], told: list[Any]) -> Turns:
        """One attempt; it may be killed between any two steps, or be one that nobody waits for."""
        transaction = self.cluster.initialize(QUERY.writer_id(run_id, process, 0))
        yield
        try:
            verdict = verdict_on_task(QUERY.kind, batch_id, run_id, self.cluster.entry(QUERY))
        except SinkError:
            return
        if verdict is Verdict.WRITE:
            for row in rows:
                yield
                try:
                    self.cluster.write(transaction, (row,))
                except FencedError:
                    return
        yield
        told.append((len(rows), (transaction,) if verdict is Verdict.WRITE and rows else ()))

    def batch(self, run_id: str, batch_id: int, decider: Decider | None) -> Turns:
        """Have tasks write the rows, divided by chance, and commit; some tasks more often than once."""
        rows = [(batch_id, number) for number in range(ROWS)]
        cuts = sorted(self.random.randrange(ROWS + 1) for _ in range(2))
        messages: list[Any] = []
        for part in (rows[: cuts[0]], rows[cuts[0] : cuts[1]], rows[cuts[1] :]):
            told: list[Any] = []
            while not told:
                attempt = self.task(run_id, batch_id, self._process(), tuple(part), told)
                if self.random.random() < 0.2:
                    self.going_on.append(attempt)  # somebody else's attempt wins
                    told = []
                    yield
                    continue
                lives = self.random.choice((3, 1_000, 1_000, 1_000))
                for _, _ in zip(range(lives), attempt, strict=False):
                    yield
                if lives < 1_000 and not told:
                    attempt.close()
                if not told and self.random.random() < 0.1:
                    messages.append((0, ()))
                    return (
                        yield from self._carry_out(Abort(self._attempt(run_id, batch_id, messages)).steps())
                    )
            messages.append(told[0])
        attempted = self._attempt(run_id, batch_id, messages)
        try:
            return (yield from self._carry_out(Commit(attempted, decider).steps()))
        except SinkError:
            yield from self._carry_out(Abort(attempted).steps())
            raise

    def driver(self, run_id: str, until: int) -> Turns:
        decider: Any = None
        batch_id = self.checkpoint
        while batch_id < until:
            try:
                outcome = yield from self.batch(run_id, batch_id, decider)
            except _TOLD:
                return
            if not isinstance(outcome, Decider):
                return  # a job that failed ends the query
            decider = outcome if self.random.random() < 0.8 else None
            written = [self.cluster.visible[(batch_id, number)] for number in range(ROWS)]
            assert written == [1] * ROWS, f"{run_id} takes batch {batch_id} to be written"
            batch_id += 1
            self.checkpoint = max(self.checkpoint, batch_id)
            yield

    def _carry_out(self, protocol: Protocol[Any]) -> Turns:
        """Do as `carry_out`, with a turn of somebody else before each step."""
        give: Callable[[], Any] = lambda: next(protocol)  # noqa: E731
        while True:
            try:
                step = give()
            except StopIteration as end:
                return end.value
            yield
            try:
                came_of_it = self.cluster.perform(step)
            except DeciderFencedError as error:
                give = lambda error=error: protocol.throw(error)  # type: ignore[misc]  # noqa: E731
            else:
                give = lambda result=came_of_it: protocol.send(result)  # type: ignore[misc]  # noqa: E731

    def _attempt(self, run_id: str, batch_id: int, messages: list[Any]) -> SinkBatch:
        return SinkBatch(
            sink=QUERY,
            batch_id=batch_id,
            run_id=run_id,
            rows=sum(rows for rows, _ in messages),
            transactions=tuple(each for _, transactions in messages for each in transactions),
            waits_for_ever=True,
        )

    def _process(self) -> str:
        self._processes += 1
        return f"p{self._processes}"
