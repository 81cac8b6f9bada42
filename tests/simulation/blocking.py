"""Code that blocks, in simulated time: production's blocking clients as they are, each on its own stack.

No two ever run at once: whoever lets one go on waits until it blocks again, so that a seed still decides
everything. They are greenlets, as threads would wait for the operating system at every turn. What blocks is
what `simulated_io` puts in the place of sockets, clocks and `select`.
"""

from collections import deque
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, Final, Self
from uuid import UUID
from weakref import WeakValueDictionary

from greenlet import getcurrent, greenlet

from sparklog.node.security.sasl.mechanism import Login
from sparklog.node.security.tls.settings import TlsSettings
from sparklog.protocol.codec.versions import downgrade
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TimestampMs
from sparklog.user.client import cluster_client, connecting, fetching, producer
from tests.simulation.leading import START_MS
from tests.simulation.network import Connection, Process
from tests.simulation.planted_bug import Replacement
from tests.simulation.serving import ApiRequest


class ProcessEndedError(BaseException):
    """The process that this ran in is no more: nothing of it goes on."""


class BlockingTask(greenlet):
    """One thing that a process does."""

    def __init__(self, process: "BlockingProcess", function: Callable[[], Any]) -> None:
        super().__init__()
        self.process: Final = process
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self._function = function
        self._awaited: Collection[SimulatedChannel] = ()
        self._waits = 0

    def run(self) -> None:
        """Do it, on the stack of its own."""
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error
        self.is_over = True

    def go_on(self) -> None:
        """Return when it blocks, or is over."""
        self._waits += 1
        self._awaited = ()
        self.parent = getcurrent()
        self.switch()

    def wait(self, for_ms: int | None, channels: "Collection[SimulatedChannel]" = ()) -> None:
        """Block, on its own stack, until something has come over one of the channels or the time is up.

        Raises:
            ProcessEndedError: there is nobody any more who waits.
        """
        self.check()
        self._awaited = channels
        if for_ms is not None:
            self.process.after(max(for_ms, 0), self._time_is_up, self._waits)
        self.parent.switch()
        self.check()

    def check(self) -> None:
        """Return if the process is alive.

        Raises:
            ProcessEndedError: it isn't.
        """
        if not self.process.alive:
            raise ProcessEndedError

    def arrived(self, channel: "SimulatedChannel") -> None:
        """Something has come over a channel."""
        if channel in self._awaited:
            self.process.go_on_with(self)

    def _time_is_up(self, waits: int) -> None:
        if waits == self._waits and not self.is_over:
            self.process.go_on_with(self)


class BlockingProcess(Process):
    """A process that does one thing at a time; connections stay from one to the next."""

    def __init__(self, world: Any, host: str) -> None:
        super().__init__(world.network, host)
        self.world = world
        self.task: BlockingTask | None = None
        self.channels: WeakValueDictionary[int, SimulatedChannel] = WeakValueDictionary()
        """By number."""
        self.channel_count = 0
        self.on_end: Callable[[], None] | None = None
        """Called when it is no more."""
        self._done: Callable[[Any, BaseException | None], None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it can be given something to do."""
        return self.alive and self.task is None

    def do(self, function: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Do something; `done` is told what came of it, if the process lives to see it."""
        assert self.is_idle, "one thing at a time"
        self._done = done
        self.task = BlockingTask(self, function)
        self.go_on_with(self.task)

    def go_on_with(self, task: BlockingTask) -> None:
        """Let it run until it blocks."""
        task.go_on()
        if not task.is_over or self.task is not task:
            return
        self.task = None
        if isinstance(task.error, ProcessEndedError):
            return
        if task.error is not None and not self.is_failure(task.error):
            raise task.error
        assert self._done is not None
        self._done(task.result, task.error)

    def is_failure(self, error: BaseException) -> bool:
        """Whether an error is what the code may raise; any other is a finding."""
        return isinstance(error, KafkaError)

    def end(self, *, silently: bool) -> None:
        super().end(silently=silently)
        task, self.task = self.task, None
        if task is not None and task is not getcurrent():
            task.go_on()
            assert task.is_over, "nothing goes on in a process that is no more"
        if self.on_end is not None:
            self.on_end()

    def sends(self, request: Any) -> None:
        """A request is about to be sent."""

    def receives(self, request: Any, response: Any) -> None:
        """An answer has come, whoever waits for it."""


def current_task() -> BlockingTask:
    """Return what runs now."""
    task = getcurrent()
    assert isinstance(task, BlockingTask), "only what blocks asks for the time"
    return task


class SimulatedChannel:
    """A `BlockingChannel` over simulated TCP: requests may be sent ahead, answers come in their order."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float = 30.0,
        *,
        connect_timeout_s: float | None = None,
        max_response_bytes: int = 0,
        tls: TlsSettings | None = None,
        login: Login | None = None,
    ) -> None:
        assert tls is None and login is None, "nobody is asked here who he is"
        task = current_task()
        self.owner: Final[Any] = task.process
        self.owner.channel_count += 1
        self._number: Final[int] = self.owner.channel_count
        self.owner.channels[self._number] = self
        self.peer = f"{host}:{port}"
        self.versions = None
        self._timeout_ms = int(timeout_s * 1000)
        self._connection: Connection | None = None
        self._outstanding: deque[tuple[int, Any]] = deque()
        self._answers: dict[int, Any] = {}
        self._sent = 0
        self._is_lost = False
        """Whether the other side has closed it, which this one finds out by using it."""
        network = self.owner.network
        task.wait(network.delay_ms() + network.delay_ms())
        server = network.listening.get(host)
        here = self.owner.host
        if network.is_cut(here, host) or network.is_cut(host, here) or host in network.crashed_hosts:
            task.wait(self._timeout_ms)
            raise self._lost("cannot connect: timed out")
        if server is None:
            raise self._lost("cannot connect: refused")
        self._connection = Connection(network, self, server)  # type: ignore[arg-type]

    has_pending = False
    """What has come can be seen by its descriptor: it is not encrypted."""

    @property
    def closed(self) -> bool:
        return self._connection is None

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    @property
    def is_readable(self) -> bool:
        """Whether `receive` would return, or raise, at once."""
        return self._is_lost or (bool(self._outstanding) and self._outstanding[0][0] in self._answers)

    def fileno(self) -> int:
        return -1 if self.closed else self._number

    def request(self, entity: Any, timeout_s: float | None = None) -> Any:
        assert not self._outstanding
        self.send(entity)
        return self.receive(timeout_s)

    def send(self, entity: Any, *, expect_response: bool = True) -> None:
        current_task().check()
        if self._connection is None or self._is_lost:
            self.close()
            raise self._lost("the connection is closed")
        self._sent += 1
        self.owner.sends(entity)
        self._connection.send_request(self._sent, ApiRequest.of(entity))
        self._outstanding.append((self._sent, entity))

    def receive(self, timeout_s: float | None = None) -> Any:
        task = current_task()
        number, _ = self._outstanding[0]
        timeout_ms = self._timeout_ms if timeout_s is None else int(timeout_s * 1000)
        if self.closed:
            raise self._lost("the connection is closed")
        if not self.is_readable:
            task.wait(timeout_ms, (self,))
        answer = self._answers.pop(number, None)
        if answer is not None:
            self._outstanding.popleft()
            return answer
        self.close()
        if self._is_lost:
            raise self._lost("the other side closed the connection")
        raise KafkaError(ErrorCode.request_timed_out, f"{self.peer}: time is up")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def answered(self, connection: Connection, number: int, answer: Any) -> None:
        """The other side answered."""
        if connection is not self._connection:
            return
        if answer is None:
            self._is_lost = True
        else:
            request = next(entity for sent, entity in self._outstanding if sent == number)
            answer = self._answers[number] = downgrade(answer, request.__version__)
            self.owner.receives(request, answer)
        self._wake()

    def lost(self, connection: Connection) -> None:
        """The connection has ended."""
        if connection is self._connection:
            self._is_lost = True
            self._wake()

    def _wake(self) -> None:
        if self.owner.task is not None:
            self.owner.task.arrived(self)

    def _lost(self, why: str) -> KafkaError:
        return KafkaError(ErrorCode.network_exception, f"{self.peer}: {why}")


class _Poll:
    """`select.poll()`."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def register(self, descriptor: int, _: int) -> None:
        assert descriptor >= 0, "a closed connection is not waited for"
        self._numbers.append(descriptor)

    def poll(self, wait_ms: int) -> list[tuple[int, int]]:
        task = current_task()
        task.check()
        channels = [task.process.channels[number] for number in self._numbers]
        if wait_ms and not any(channel.is_readable for channel in channels):
            task.wait(wait_ms, channels)
        return [(channel.fileno(), 1) for channel in channels if channel.is_readable]


def now_ms() -> int:
    """Return the time of the process's clock."""
    return current_task().process.now_ms


def wall_ms() -> TimestampMs:
    """Return the time of day."""
    return START_MS + current_task().process.scheduler.now_ms


def new_uuid() -> UUID:
    """Return an id that nobody has."""
    return UUID(int=current_task().process.scheduler.random.getrandbits(128), version=4)


def simulated_io() -> list[Replacement]:
    """Return what is put in the place of sockets, clocks, chance and `select` in the blocking clients."""
    time = SimpleNamespace(
        monotonic=lambda: now_ms() / 1000, sleep=lambda pause_s: current_task().wait(int(pause_s * 1000))
    )
    random = SimpleNamespace(Random=lambda: current_task().process.scheduler.random)
    return [
        Replacement(connecting, "BlockingChannel", SimulatedChannel),
        Replacement(cluster_client, "time", time),
        Replacement(cluster_client, "monotonic_ms", now_ms),
        Replacement(cluster_client, "random", random),
        Replacement(fetching, "time", time),
        Replacement(producer, "monotonic_ms", now_ms),
        Replacement(producer, "select", SimpleNamespace(poll=_Poll, POLLIN=1)),
    ]
