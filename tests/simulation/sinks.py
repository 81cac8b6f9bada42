"""The sinks of one simulation: who writes into them, in which processes, and what is watched."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sparklog.user.dataframe import delivery, row_writer, worker_process
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.worker_process import WorkerProcess
from sparklog.user.sink import decisions_topic
from sparklog.user.sink.machine.names import SinkId
from tests.simulation.blocking import current_task, new_uuid, simulated_io, wall_ms
from tests.simulation.planted_bug import Replacement, replaced
from tests.simulation.sink_book import SinkBook
from tests.simulation.sink_spark import Driver, PythonProcess, WatchedSinkClient
from tests.simulation.sink_writers import Jobs, Operator, Query, Versions, Writer

if TYPE_CHECKING:
    from tests.simulation.cluster import World

TOPICS: Final = ("rows", "totals")
_BOOTSTRAP_SERVERS: Final = "broker-0:9092,broker-1:9092,broker-2:9092"
_API_TIMEOUTS_MS: Final = (2_000, 6_000, 20_000)
"""Shorter than a failover, and longer: then it is not known what became of a step."""
_MAX_BLOCK_MS: Final = 5_000


class Sinks:
    """All of them."""

    def __init__(self, world: "World") -> None:
        self.world: Final = world
        self.hosts: Final = ("spark-0", "spark-1")
        self.book: Final = SinkBook(world)
        self.processes: list[Driver | PythonProcess] = []
        """Those that are alive."""
        random = world.scheduler.random
        self._api_timeout_ms = random.choice(_API_TIMEOUTS_MS)
        kinds: list[Callable[[Sinks, str, str], Writer]] = [
            Query,
            Query,
            *random.sample((Query, Versions, Versions, Jobs), random.randint(1, 2)),
        ]
        self.writers: Final = [
            kind(self, f"w{number}", TOPICS[0] if number < 2 else random.choice(TOPICS))
            for number, kind in enumerate(kinds)
        ]

    @property
    def has_mishaps(self) -> bool:
        """Whether anything still happens to Spark."""
        return self.world.accepts_writes

    def unsettled(self) -> str | None:
        """Say who is not done, or what nobody ends; None when all is."""
        writers = [writer.name for writer in self.writers if not writer.has_settled]
        if writers or self.processes:
            return f"{writers} write, {[process.name for process in self.processes]} go on"
        left = self.book.open_writers()
        return f"nobody ends {left}" if left else None

    def check(self) -> None:
        """See that all is as it must be when all have settled."""
        self.book.settled({writer.name: writer.expected() for writer in self.writers})

    def options(self, topic: str) -> WriteOptions:
        """Return the options of a write to a topic."""
        return WriteOptions.parse(
            {
                "topic": topic,
                "kafka.bootstrap.servers": _BOOTSTRAP_SERVERS,
                "kafka.request.timeout.ms": "1500",
                "kafka.default.api.timeout.ms": str(self._api_timeout_ms),
                "kafka.delivery.timeout.ms": str(self._api_timeout_ms + 1_500),
                "kafka.max.block.ms": str(_MAX_BLOCK_MS),
            },
            None,
        )

    def settle(self, sink: SinkId, then: Callable[[], None]) -> None:
        """Have an operator end what is open of a sink that nobody goes on with."""
        Operator(self, sink, self.options(TOPICS[0]), then)

    def close(self) -> None:
        """End all processes, and so what they do."""
        for process in list(self.processes):
            process.end()


@contextmanager
def sinks_simulated() -> Iterator[None]:
    """Have production's clients run on simulated time while inside."""

    def this_process() -> WorkerProcess:
        process = current_task().process
        assert isinstance(process, PythonProcess), "Spark runs it"
        return process.kept

    class Ids:
        uuid4 = staticmethod(new_uuid)

    with replaced(
        [
            *simulated_io(),
            Replacement(delivery, "this_process", this_process),
            Replacement(worker_process, "SinkClient", WatchedSinkClient),
            Replacement(worker_process, "uuid", Ids),
            Replacement(row_writer, "wall_clock_ms", wall_ms),
            Replacement(decisions_topic, "wall_clock_ms", wall_ms),
        ]
    ):
        yield
