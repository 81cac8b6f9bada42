"""Who writes into sinks: streaming queries with their checkpoints, jobs with a version, and jobs without.

Each has rows that are to be in the log once. A query's batch is planned before its tasks begin, and comes
again as it was planned; its checkpoint may be copied and run twice, or an older copy be restored. Whoever
looks after a query starts it again, from the checkpoint that has come furthest of those that are not refused.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from sparklog.protocol.errors import KafkaError
from sparklog.user.dataframe.delivery import ExactlyOnce, reported_batch
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.prepared_rows import Batch
from sparklog.user.sink.machine.errors import SinkError
from sparklog.user.sink.machine.names import SinkId, SinkKind
from sparklog.user.sink.machine.protocols import Settle
from sparklog.user.sink.machine.steps import carry_out
from tests.simulation.blocking import current_task
from tests.simulation.sink_spark import FAILURES, Driver, PythonProcess, StageFailedError

if TYPE_CHECKING:
    from tests.simulation.sinks import Sinks

_SCHEMA: Final = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])
_TASKS: Final = (1, 2, 3)
_ROWS: Final = (2, 4, 9)
"""Of a batch at most."""
_ROWS_AT_ONCE: Final = 3
_RESTART_MS: Final = (20, 300, 1_000)
_DIES: Final = 0.3
_HANGS: Final = 0.3
_HANGS_MS: Final = (300, 4_000)
_RIVAL: Final = 0.6
_RESTORED: Final = 0.25
_COPIED: Final = 0.3
_SETTLED: Final = 0.12
_AVAILABLE_NOW: Final = 0.25
_ARRIVALS_MS: Final = 800
_REFUSED: Final = "checkpoint is an older copy"
"""What is said of a checkpoint that was restored, or was left behind by a copy."""
_PAUSE_MS: Final = 200
_VERSIONS: Final = 5
_JOBS: Final = 4


class Writer:
    """One sink's owner, or that of many; its drivers die and are started again."""

    def __init__(self, sinks: "Sinks", name: str, topic: str) -> None:
        self.sinks: Final = sinks
        self.name: Final = name
        self.random: Final = sinks.world.scheduler.random
        self.topic: Final = topic
        self._options = sinks.options(topic)
        self._drivers: list[Driver] = []
        """Those that are alive."""
        self._driver_count = 0
        self._later(400, self.start)

    @property
    def has_settled(self) -> bool:
        """Whether everything is written, and nobody writes any more."""
        raise NotImplementedError

    def start(self) -> None:
        """Start a driver, unless there is one, as far as anybody can see."""
        world = self.sinks.world
        if world.has_lost and not world.accepts_writes:
            return  # its last decision may be lost, and what it has to do is not known any more
        if all(driver.stopped for driver in self._drivers) and not self.has_settled:
            self.begin()

    def begin(self) -> None:
        """Start a driver."""
        raise NotImplementedError

    def expected(self) -> set[str]:
        """Return the rows that are to be in the log."""
        raise NotImplementedError

    def _later(self, within_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self.sinks.world.scheduler.after(1 + self.random.randrange(within_ms), action, *arguments)

    # --- drivers --------------------------------------------------------------------------------

    def _begin(self, main: Callable[[Driver], Any]) -> None:
        """Have a driver do something, and something happen to it."""
        self._driver_count += 1
        driver = Driver(self.sinks, f"{self.name}/{self._driver_count}", main)
        driver.on_death = self._died
        self._drivers.append(driver)
        self.sinks.world.tell(None, f"{driver.name} starts")
        if self.sinks.has_mishaps:
            chance = self.random.random()
            if chance < _DIES:
                self._later(2_000, self._kill, driver)
            elif chance < _DIES + _HANGS:
                self._later(2_000, self._hang, driver)

    def _kill(self, driver: Driver) -> None:
        if driver.alive and self.sinks.has_mishaps:
            self.sinks.world.tell(None, f"{driver.name} is killed")
            driver.die()

    def _hang(self, driver: Driver) -> None:
        """Have a driver hang, and be taken for dead, while it is not."""
        if driver.alive and self.sinks.has_mishaps:
            self.sinks.world.tell(None, f"{driver.name} hangs")
            driver.stop()
            self._later(self.random.choice(_RESTART_MS), self.start)
            self.sinks.world.scheduler.after(self.random.randint(*_HANGS_MS), self._go_on, driver)

    def _go_on(self, driver: Driver) -> None:
        if driver.alive:
            self.sinks.world.tell(None, f"{driver.name} goes on")
            driver.go_on()

    def _died(self, driver: Driver) -> None:
        self._drivers.remove(driver)
        self._later(self.random.choice(_RESTART_MS), self.start)

    def ends(self, driver: Driver) -> None:
        """A driver has nothing more to do."""
        self.sinks.world.tell(None, f"{driver.name} ends")
        self.sinks.world.scheduler.after(0, self._ended, driver)

    def _ended(self, driver: Driver) -> None:
        if driver.alive:
            driver.end()
            self._drivers.remove(driver)
            self._later(self.random.choice(_RESTART_MS), self.start)

    # --- one write ------------------------------------------------------------------------------

    async def write(self, driver: Driver, batch: Batch, rows: Sequence[str]) -> None:
        """Write a batch as Spark does.

        Raises:
            KafkaError, SinkError: it has failed, so far as is known.
        """
        writer = ExactlyOnce(self._options, _SCHEMA)
        sink = batch.sink
        decider = None
        if sink.kind is not SinkKind.QUERY or self.random.random() < 0.2:
            decider = await driver.commits(sink, partial(writer.prepare, batch))
        parts: list[list[str]] = [[] for _ in range(self.random.choice(_TASKS))]
        for row in rows:
            self.random.choice(parts).append(row)
        tasks = [partial(_write_rows, writer, batch, self._task_rows(part)) for part in parts]
        messages: list[Any] = []
        try:
            messages = await driver.run_stage(sink, tasks)
            await driver.sleep(30)
            await driver.commits(sink, partial(writer.commit, batch, messages, decider))
        except FAILURES as error:
            self.sinks.world.tell(None, f"{driver.name}: batch {batch.batch_id} fails: {error}")
            if isinstance(error, StageFailedError):
                messages = error.messages
            told = batch if sink.kind is not SinkKind.QUERY else reported_batch(messages)
            if told is not None and not await driver.commits(sink, partial(writer.abort, told, messages)):
                self.sinks.book.given_up(sink, batch.batch_id, batch.run_id)
            raise
        self.sinks.book.reported(sink, batch.batch_id, rows)

    def _task_rows(self, rows: list[str]) -> list[pa.RecordBatch]:
        """Return a task's rows; which partition each goes to is settled, however often the task is tried."""
        count = self.sinks.world.topics[self.topic].partitions
        return [
            pa.RecordBatch.from_arrays(
                [
                    pa.array([row.encode() for row in chunk], pa.binary()),
                    pa.array([self.random.randrange(count) for _ in chunk], pa.int32()),
                ],
                names=["value", "partition"],
            )
            for chunk in (rows[at : at + _ROWS_AT_ONCE] for at in range(0, len(rows), _ROWS_AT_ONCE))
        ]


def _write_rows(writer: ExactlyOnce, batch: Batch, rows: list[pa.RecordBatch]) -> Any:
    return writer.write(batch, iter(rows))


class Checkpoint:
    """What a query knows of itself: batches that were planned, and which of them are done."""

    def __init__(self) -> None:
        self.plans: dict[int, tuple[str, int, int]] = {}
        """By which run, and of which rows."""
        self.done: set[int] = set()
        self.is_refused = False

    def copy(self) -> "Checkpoint":
        """Return a copy."""
        copied = Checkpoint()
        copied.plans, copied.done = dict(self.plans), set(self.done)
        return copied

    @property
    def progress(self) -> tuple[int, int]:
        """How far it has come."""
        return max(self.done, default=-1), max(self.plans, default=-1)

    @property
    def planned_rows(self) -> int:
        """How many rows are in a batch."""
        return self.plans[max(self.plans)][2] if self.plans else 0


class ConcurrentRunError(KafkaError):
    """Another run has planned or done a batch in the same checkpoint."""

    def __init__(self) -> None:
        super().__init__(StageFailedError([]).error_code, "another run uses the checkpoint")


class Query(Writer):
    """A streaming query, its input, and all copies of its checkpoint."""

    def __init__(self, sinks: "Sinks", name: str, topic: str) -> None:
        super().__init__(sinks, name, topic)
        self.sink: Final = SinkId(SinkKind.QUERY, name)
        self._input = self.random.randint(2, 6)
        self._batch_rows = self.random.choice(_ROWS)
        self._checkpoints = [Checkpoint()]
        self._snapshots: list[Checkpoint] = []
        self._is_settling = False
        self._runs = 0
        self._arrive()

    def expected(self) -> set[str]:
        return {f"{self.name}:{number}" for number in range(self._input)}

    @property
    def has_settled(self) -> bool:
        checkpoint = self._furthest()
        is_done = checkpoint.planned_rows == self._input and checkpoint.plans.keys() <= checkpoint.done
        return not self.sinks.world.accepts_writes and is_done and not self._drivers

    def _arrive(self) -> None:
        if self.sinks.world.accepts_writes:
            self._input += self.random.randint(0, 3)
            self._later(_ARRIVALS_MS, self._arrive)

    def _furthest(self) -> Checkpoint:
        return max(
            (each for each in self._checkpoints if not each.is_refused), key=lambda each: each.progress
        )

    def begin(self) -> None:
        if (
            not self._is_settling
            and not self._drivers
            and self.sinks.has_mishaps
            and self.random.random() < _SETTLED
        ):
            self._is_settling = True
            self.sinks.settle(self.sink, self._settled)
        if self._is_settling:
            return
        checkpoint = self._furthest()
        if self._snapshots and self.sinks.has_mishaps and self.random.random() < _RESTORED:
            checkpoint = self.random.choice(self._snapshots).copy()
            self._checkpoints.append(checkpoint)
        self._begin(partial(self._run, checkpoint=checkpoint))
        if self.sinks.has_mishaps and self.random.random() < _RIVAL:
            copied = checkpoint.copy()
            self._checkpoints.append(copied)
            self._begin(partial(self._run, checkpoint=copied))

    def _settled(self) -> None:
        self._is_settling = False
        self.start()

    async def _run(self, driver: Driver, checkpoint: Checkpoint) -> None:
        self._runs += 1
        run_id = f"{self.name}r{self._runs}"
        is_available_now = self.random.random() < _AVAILABLE_NOW
        last = max(checkpoint.plans, default=-1)
        batch_id = last if last >= 0 and last not in checkpoint.done else last + 1
        try:
            while True:
                if batch_id not in checkpoint.plans:
                    if checkpoint.planned_rows == self._input:
                        if is_available_now or not self.sinks.world.accepts_writes:
                            break
                        await driver.sleep(_ARRIVALS_MS)
                        continue
                    self._plan(checkpoint, batch_id, run_id)
                await self._batch(driver, checkpoint, batch_id, run_id)
                batch_id += 1
        except FAILURES as error:
            # A task's refusal comes as its text; of a run that hung, its checkpoint has gone on.
            if _REFUSED in str(error) and batch_id == max(checkpoint.plans) not in checkpoint.done:
                checkpoint.is_refused = True
        self.ends(driver)

    def _plan(self, checkpoint: Checkpoint, batch_id: int, run_id: str) -> None:
        if checkpoint.is_refused or batch_id - 1 not in {-1, *checkpoint.done}:
            raise ConcurrentRunError
        begin = checkpoint.planned_rows
        end = self._input
        if self.sinks.world.accepts_writes:
            end = min(end, begin + self.random.randint(1, self._batch_rows))
        checkpoint.plans[batch_id] = (run_id, begin, end)

    async def _batch(self, driver: Driver, checkpoint: Checkpoint, batch_id: int, run_id: str) -> None:
        _, begin, end = checkpoint.plans[batch_id]
        await driver.sleep(20)
        rows = [f"{self.name}:{number}" for number in range(begin, end)]
        await self.write(driver, Batch(self.sink, batch_id, run_id), rows)
        await driver.sleep(_PAUSE_MS)
        if batch_id in checkpoint.done or batch_id + 1 in checkpoint.plans:
            raise ConcurrentRunError
        checkpoint.done.add(batch_id)
        if self.sinks.has_mishaps and self.random.random() < _COPIED:
            self._snapshots.append(checkpoint.copy())


class Versions(Writer):
    """Writes of an application that names them by version, and does one again until it was done."""

    def __init__(self, sinks: "Sinks", name: str, topic: str) -> None:
        super().__init__(sinks, name, topic)
        self.sink: Final = SinkId(SinkKind.APPLICATION, name, topic)
        self._next = 0
        """The first version that it does not know to be done, as of one that a driver has died in."""
        self._in_hand: dict[Driver, int] = {}
        self._overtaken: set[int] = set()
        """Versions after which another one was begun before they were done: they may be left out."""
        self._writes = 0

    def expected(self) -> set[str]:
        decided = {each.batch_id for each in self.sinks.book.sink(self.sink.text).decisions}
        versions = set(range(_VERSIONS)) - (self._overtaken - decided)
        return {row for version in versions for row in self._rows_of(version)}

    def _rows_of(self, version: int) -> list[str]:
        return [f"{self.name}:{version}-{number}" for number in range(1 + version % 3)]

    @property
    def has_settled(self) -> bool:
        return self._next == _VERSIONS and not self._drivers

    def begin(self) -> None:
        self._begin(partial(self._run, version=self._next))
        if self.sinks.has_mishaps and self.random.random() < _RIVAL:
            version = min(self._next + self.random.randint(0, 2), _VERSIONS - 1)
            self._overtaken |= set(range(self._next, version))
            self._begin(partial(self._run, version=version))

    def _died(self, driver: Driver) -> None:
        self._next = min(self._next, self._in_hand.pop(driver, _VERSIONS))
        super()._died(driver)

    async def _run(self, driver: Driver, version: int) -> None:
        while version < _VERSIONS:
            self._in_hand[driver] = version
            self._writes += 1
            batch = Batch(self.sink, version, f"{self.name}v{self._writes}")
            try:
                await self.write(driver, batch, self._rows_of(version))
            except FAILURES:
                self._next = min(self._next, version)
                if self.random.random() < 0.5:
                    break
            else:
                version += 1
                self._next = max(self._next, version)
            del self._in_hand[driver]
            await driver.sleep(300)
        self._in_hand.pop(driver, None)
        self.ends(driver)


class Jobs(Writer):
    """Writes that are not done again: all rows or none, and what nobody ends an operator does."""

    def __init__(self, sinks: "Sinks", name: str, topic: str) -> None:
        super().__init__(sinks, name, topic)
        self._begun = 0
        self._unsettled: list[SinkId] = []
        """Jobs of which it is not known what became of them."""
        self._is_settling = False
        self._written: set[str] = set()

    def expected(self) -> set[str]:
        return self._written

    @property
    def has_settled(self) -> bool:
        return self._begun == _JOBS and not self._drivers and not self._unsettled

    def begin(self) -> None:
        if self._is_settling:
            return
        if self._unsettled and not self._drivers:
            self._is_settling = True
            self.sinks.settle(self._unsettled[0], self._settled)
        elif self._begun < _JOBS:
            self._begin(self._run)

    def _settled(self) -> None:
        self._is_settling = False
        self._unsettled.pop(0)
        self.start()

    async def _run(self, driver: Driver) -> None:
        while self._begun < _JOBS:
            self._begun += 1
            sink = SinkId(SinkKind.JOB, f"{self.name}j{self._begun}")
            rows = [f"{sink.name}:{number}" for number in range(self.random.randint(1, 5))]
            self._unsettled.append(sink)
            try:
                await self.write(driver, Batch(sink, 0, f"{sink.name}r"), rows)
            except FAILURES:
                break
            self._unsettled.remove(sink)
            self._written.update(rows)
            await driver.sleep(300)
        self.ends(driver)


class Operator:
    """Settles sinks, for as long as it takes."""

    def __init__(self, sinks: "Sinks", sink: SinkId, options: WriteOptions, then: Callable[[], None]) -> None:
        self._sinks = sinks
        self._sink = sink
        self._options = options
        self._then = then
        self._process = PythonProcess(sinks, sinks.world.scheduler.random.choice(sinks.hosts), "operator")
        self._process.claim(sink)
        self._try()

    def _try(self) -> None:
        self._process.do(self._settle, self._done)

    def _settle(self) -> Any:
        process: Any = current_task().process
        return carry_out(Settle(self._sink).steps(), process.kept.client(self._options.client).perform)

    def _done(self, result: Any, error: BaseException | None) -> None:
        self._sinks.world.tell(None, f"{self._sink.text} is settled: {result or error}")
        if isinstance(error, SinkError) and self._sinks.book.is_held:
            raise error
        if error is not None and not isinstance(error, SinkError):
            self._process.after(100, self._try)
        else:
            self._process.end()
            self._then()
