"""Spark as a sink sees it: a driver, executors' and driver's Python processes, stages of tasks.

A process's code is production's (`sparklog.user.dataframe.delivery`, and what is beneath it); Spark's part
is here: tasks are tried again, run twice, run once more with their stage, and go on when nobody waits for
them; executors and drivers are killed and stopped, drivers also between any two steps of a commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.user.dataframe.worker_process import WorkerProcess
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.errors import SinkError
from sparklog.user.sink.machine.names import SinkId
from sparklog.user.sink.machine.steps import Step
from tests.simulation.async_loop import AsyncLoop, set_running_loop
from tests.simulation.blocking import BlockingProcess, current_task
from tests.simulation.network import Process

if TYPE_CHECKING:
    from tests.simulation.sinks import Sinks

FAILURES: Final = (KafkaError, SinkError)
_TASK_ATTEMPTS: Final = 4
_EXECUTORS: Final = (2, 3)
_ORPHANED_MS: Final = 3_000
"""For how long executors outlive their driver at most."""
_LOST_AFTER_MS: Final = 300
"""How long it takes a driver at most to learn that an executor is no more, or does not answer."""
_STOPPED_MS: Final = (200, 4_000)
_KILLED_AT_STEP: Final = 0.02
_PROCESS_KILLED_AT_STEP: Final = 0.02
_SPECULATIVE: Final = 0.12
_KILLED: Final = 0.06
_STOPPED: Final = 0.06
_NOT_HEARD: Final = 0.04
"""How often a task is done and its driver doesn't learn it."""
_STAGE_AGAIN: Final = 0.06


class WorkerLostError(KafkaError):
    """A Python process is no more, or does not answer."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.unknown_server_error, "the worker was lost")


class StageFailedError(KafkaError):
    """A task has failed too often."""

    def __init__(self, messages: list[Any]) -> None:
        super().__init__(ErrorCode.unknown_server_error, "a task has failed too often")
        self.messages: Final = messages
        """Of those that were done."""


class PythonProcess(BlockingProcess):
    """One of Spark's Python processes; what production keeps in one, it keeps."""

    def __init__(self, sinks: "Sinks", host: str, name: str) -> None:
        super().__init__(sinks.world, host)
        self.name: Final = name
        self.sink: SinkId | None = None
        """What it works for at present."""
        self.driver: Driver | None = None
        """Who dies with it, at any step of a commit."""
        self.is_claimed = False
        self._sinks = sinks
        self._kept: WorkerProcess | None = None
        sinks.processes.append(self)

    @property
    def kept(self) -> WorkerProcess:
        """What production keeps in a process."""
        if self._kept is None:
            self._kept = WorkerProcess()
        return self._kept

    def claim(self, sink: SinkId) -> None:
        """Let nobody else give it anything to do."""
        self.is_claimed, self.sink = True, sink

    def release(self) -> None:
        """Have it be given something else."""
        self.is_claimed, self.on_end = False, None

    def end(self, *, silently: bool = False) -> None:
        if self.alive:
            self._sinks.processes.remove(self)
            super().end(silently=silently)

    def is_failure(self, error: BaseException) -> bool:
        return isinstance(error, FAILURES)

    def sends(self, request: Any) -> None:
        self._sinks.book.sent(self.name, self.sink, request)

    def receives(self, request: Any, response: Any) -> None:
        self._sinks.book.answered(request, response)

    def performing(self, step: Step) -> None:
        """A step is about to be taken, or was; whoever takes it may die here."""
        random = self.scheduler.random
        if self.driver is None or not self._sinks.has_mishaps:
            return
        chance = random.random()
        if chance < _KILLED_AT_STEP:
            self._sinks.world.tell(None, f"{self.driver.name} dies at {type(step).__name__}")
            self.driver.die()
        elif chance < _KILLED_AT_STEP + _PROCESS_KILLED_AT_STEP:
            self._sinks.world.tell(None, f"{self.name} dies at {type(step).__name__}")
            self.end()
        current_task().check()


class WatchedSinkClient(SinkClient):
    """Production's, under the eyes of the observer, whose process may end at each step."""

    def perform(self, step: Step) -> Any:
        process: Any = current_task().process
        book = process.world.sinks.book
        process.performing(step)
        process.world.tell(None, f"{process.name}: {step}")
        before = book.before(step)
        result = super().perform(step)
        book.performed(step, before, result)
        process.performing(step)
        return result


class Driver(Process):
    """One run of a Spark application, with its executors."""

    def __init__(
        self, sinks: "Sinks", name: str, main: Callable[["Driver"], Coroutine[Any, Any, None]]
    ) -> None:
        random = sinks.world.scheduler.random
        super().__init__(sinks.world.network, random.choice(sinks.hosts))
        self.name: Final = name
        self.random: Final = random
        self.loop: Final = AsyncLoop(self)
        self.on_death: Callable[[Driver], None] | None = None
        self._sinks = sinks
        self._count = 0
        self._executors = [self._new_process("executor") for _ in range(random.choice(_EXECUTORS))]
        self._commits: PythonProcess | None = None
        sinks.processes.append(self)
        self.after(0, lambda: self.loop.create_task(main(self)))

    def run(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        set_running_loop(self.loop)
        try:
            super().run(action, arguments)
        finally:
            set_running_loop(None)

    def end(self, *, silently: bool = False) -> None:
        if not self.alive:
            return
        self._sinks.processes.remove(self)
        super().end(silently=silently)
        self.loop.close()
        if self._commits is not None:
            self._commits.end()
        for executor in self._executors:
            self._orphan(executor)

    def die(self) -> None:
        """End as by SIGKILL, and have it known."""
        if self.alive:
            self.end()
            if self.on_death is not None:
                self.on_death(self)

    async def sleep(self, within_ms: int) -> None:
        """Wait for a while."""
        await asyncio.sleep((1 + self.random.randrange(within_ms)) / 1000)

    async def commits(self, sink: SinkId, function: Callable[[], Any]) -> Any:
        """Have a Python process on the driver's host do something: the one before, or another.

        Raises:
            KafkaError, SinkError: as it does.
        """
        process = self._commits
        if process is None or not process.alive or self.random.random() < 0.1:
            if process is not None:
                process.end()
            process = self._commits = self._new_process("commits")
            process.driver = self
        return await self._ask(process, sink, function)

    # --- stages ---------------------------------------------------------------------------------

    async def run_stage(self, sink: SinkId, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return what each task says; of those that were done more than once, what any of them says.

        Raises:
            StageFailedError: one has failed too often.
        """
        messages = await self._run_all(sink, tasks)
        if self._sinks.has_mishaps and self.random.random() < _STAGE_AGAIN:
            self._sinks.world.tell(None, f"{self.name} runs a stage again")
            others = await self._run_all(sink, tasks)
            messages = [self.random.choice(both) for both in zip(messages, others, strict=True)]
        return messages

    async def _run_all(self, sink: SinkId, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        running = [self.loop.create_task(self._run_task(sink, task)) for task in tasks]
        messages = [await each for each in running]
        if None in messages:
            raise StageFailedError(messages)
        return messages

    async def _run_task(self, sink: SinkId, task: Callable[[], Any]) -> Any:
        """Return what an attempt of the task says; None if all have failed."""
        for _ in range(_TASK_ATTEMPTS):
            attempts = [self._attempt(sink, task)]
            if self._sinks.has_mishaps and self.random.random() < _SPECULATIVE:
                attempts.append(self._attempt(sink, task, late_ms=300))
            message = await self._first(attempts)
            if message is not None:
                return message
            await self.sleep(50)
        return None

    async def _first(self, attempts: list[Awaitable[Any]]) -> Any:
        """Return what the first attempt says that is done; others go on, and nobody listens to them."""
        won = self.loop.create_future()
        left = len(attempts)

        async def run(attempt: Awaitable[Any]) -> None:
            nonlocal left
            try:
                message = await attempt
            except FAILURES:
                message = None
            left -= 1
            if not won.done() and (message is not None or not left):
                won.set_result(message)

        for attempt in attempts:
            self.loop.create_task(run(attempt))
        return await won

    async def _attempt(self, sink: SinkId, task: Callable[[], Any], late_ms: int = 0) -> Any:
        if late_ms:
            await self.sleep(late_ms)
        while (executor := self._free_executor()) is None:
            await self.sleep(50)
        chance = self.random.random() if self._sinks.has_mishaps else 1.0
        if chance < _KILLED:
            executor.after(1 + self.random.randrange(_LOST_AFTER_MS), executor.end)
        elif chance < _KILLED + _STOPPED:
            self.after(1 + self.random.randrange(100), self._stop, executor)
        message = await self._ask(executor, sink, task)
        if _KILLED + _STOPPED <= chance < _KILLED + _STOPPED + _NOT_HEARD:
            raise WorkerLostError
        return message

    def _free_executor(self) -> PythonProcess | None:
        self._executors = [
            executor if executor.alive else self._new_process("executor") for executor in self._executors
        ]
        free = [executor for executor in self._executors if executor.is_idle and not executor.is_claimed]
        return self.random.choice(free) if free else None

    def _stop(self, executor: PythonProcess) -> None:
        """Have an executor hang; it counts as lost, and goes on when nobody waits for it."""
        if executor.alive and executor in self._executors:
            self._sinks.world.tell(None, f"{executor.name} hangs")
            executor.stop()
            self._executors.remove(executor)
            self._executors.append(self._new_process("executor"))
            if executor.on_end is not None:
                executor.on_end()
            for_ms = self.random.randint(*_STOPPED_MS)
            self._sinks.world.scheduler.after(for_ms, self._go_on, executor)

    def _go_on(self, executor: PythonProcess) -> None:
        if executor.alive:
            self._sinks.world.tell(None, f"{executor.name} goes on")
            executor.go_on()
            self._orphan(executor)

    def _orphan(self, executor: PythonProcess) -> None:
        """Have an executor end in a while."""
        within_ms = self.random.choice((1, 200, _ORPHANED_MS))
        self._sinks.world.scheduler.after(self.random.randrange(within_ms), executor.end)

    # --- processes ------------------------------------------------------------------------------

    def _new_process(self, kind: str) -> PythonProcess:
        self._count += 1
        host = self.host if kind == "commits" else self.random.choice(self._sinks.hosts)
        return PythonProcess(self._sinks, host, f"{kind} {self._count} of {self.name}")

    async def _ask(self, process: PythonProcess, sink: SinkId, function: Callable[[], Any]) -> Any:
        process.claim(sink)
        answered = self.loop.create_future()

        def answer(result: Any, error: BaseException | None) -> None:
            if answered.done():
                return
            if error is None:
                answered.set_result(result)
            else:
                answered.set_exception(error)

        def done(result: Any, error: BaseException | None) -> None:
            process.release()
            self.after(1 + self.random.randrange(5), answer, result, error)

        def lost() -> None:
            self.after(1 + self.random.randrange(_LOST_AFTER_MS), answer, None, WorkerLostError())

        process.on_end = lost
        process.after(self.random.randrange(5), process.do, function, done)
        return await answered
