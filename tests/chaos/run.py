"""One life of an application: break it again and again, and in the end compare promises with what is there.

    with Run(...) as run:
        run.observe("worker")       # as often as there is time
    run.session                     # the verdict

A fault strikes a cluster that is whole, at a random time after it has become so, and is over when the cluster
is whole again, every partition is written to, and a moment has shown that both stay so.
"""

import contextlib
import random
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from benchmarks.longest_stall import longest_stall_ms
from benchmarks.probe import RECORD_INTERVAL_S, Probe, ProbeError
from tests.chaos.application import BROKERS, Application
from tests.chaos.disks import Disk
from tests.chaos.faults import FAULTS
from tests.chaos.ledger import Ledger
from tests.chaos.observations import Observation, Session
from tests.chaos.picture import Mark, Timeline
from tests.chaos.reading import Reader, read_everything
from tests.chaos.reaper import Reaper
from tests.chaos.scene import Scene, Tier
from tests.chaos.store_faults import CONFIG, TOPIC_CONFIG
from tests.chaos.store_proxy import FaultyS3
from tests.chaos.table_faults import TOPIC_CONFIG as TABLE_TOPIC_CONFIG
from tests.chaos.table_faults import table_config
from tests.chaos.view import Sight, View, broker_processes

TOPIC: Final = "chaos"
PARTITIONS: Final = 6
RECOVERY_TIMEOUT_S: Final = 240.0
AFTERMATH_S: Final = 1.0
"""How long a cluster must have been whole before a fault counts as over."""
SHORTEST_PAUSE_S: Final = 0.2
POLL_S: Final = 0.1
FAILURES_TOLD: Final = 5
CLIENT: Final = {"reconnect.backoff.max.ms": 1_000}
"""librdkafka waits up to 10 s before it looks again for a driver that was away; Java's clients 1 s, as here.
"""


class RecoveryError(Exception):
    """The cluster did not become whole again; says what is missing."""


class Run:
    """A context manager around one application, its producer and its readers."""

    def __init__(
        self,
        directory: Path,
        mode: str,
        seed: int,
        *,
        with_disks: bool,
        tier: Tier = Tier.NONE,
        executors: int = BROKERS,
        freeze_s: float,
        broken_disk_s: float,
        longest_pause_s: float,
        minutes: float = 1.0,
        record_interval_s: float = RECORD_INTERVAL_S,
        say: Callable[[str], None] = print,
    ) -> None:
        """Everything is written to `directory`; `longest_pause_s` bounds the random time before a fault.

        `minutes` is how long a fault lasts that could go on for ever; `record_interval_s` is the time between
        two records to a partition, and so the precision of the times without an acknowledgement.
        """
        self.session: Session | None = None
        self.timeline: Timeline | None = None
        self.mark = f"{directory.name}-{uuid.uuid4().hex[:8]}"
        """What its processes are known by; see `tests/chaos/reaper.py`."""
        self.directory = directory
        self._mode = mode
        self._seed = seed
        self._with_disks = with_disks
        self._tier = tier
        self._executors = executors
        self._freeze_s = freeze_s
        self._broken_disk_s = broken_disk_s
        self._longest_pause_s = longest_pause_s
        self._minutes = minutes
        self._record_interval_s = record_interval_s
        self._say = say
        self._chance = random.Random(seed)
        self._ledger = Ledger(PARTITIONS)
        self._marks: list[Mark] = []
        self._faults: list[str] = []
        self._work_directories: set[Path] = set()

    def __enter__(self) -> Self:
        """Return when the cluster is whole and written to."""
        self.directory.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            self._started_s = time.monotonic()
            store = stack.enter_context(FaultyS3(self._seed)) if self._tier is Tier.FAULTY_S3 else None
            application = Application(
                self.mark, self.directory, self._config(store), executors=self._executors
            )
            stack.enter_context(Reaper(self.mark, self.directory / "disks"))
            disks = self._make_disks(application.data_directory) if self._with_disks else {}
            stack.enter_context(application)
            self._bootstrap_servers = application.bootstrap_servers
            view = View(self._bootstrap_servers, TOPIC, PARTITIONS, BROKERS)
            view.create_topic(self._topic_config())
            self._reader = stack.enter_context(
                Reader(self._bootstrap_servers, TOPIC, PARTITIONS, self._ledger)
            )
            self._probe = stack.enter_context(
                Probe(
                    self._bootstrap_servers,
                    TOPIC,
                    PARTITIONS,
                    record_interval_s=self._record_interval_s,
                    configuration=CLIENT,
                )
            )
            self._scene = Scene(
                application,
                view,
                self._chance,
                disks,
                self._freeze_s,
                self._broken_disk_s,
                self._minutes,
                self._ledger,
                store,
                self._probe,
                self._reader,
            )
            _, self._sight = self._wait_until_whole({})
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Judge, whatever has happened, and clear up; a run in which something was wrong keeps its data."""
        with self._stack:
            self._note_work_directories()
            self.session = self._judge(exception)
        self._keep_executors_logs()
        if self.session.is_clean:
            for name in ("bucket", "data", "disks", "scratch"):
                shutil.rmtree(self.directory / name, ignore_errors=True)

    def observe(self, fault: str) -> Observation:
        """Break something, wait until the cluster is whole again, and return what that cost.

        Raises:
            RecoveryError: it did not become whole.
            ApplicationError: the application does not even start any more.
        """
        sight = self._sight
        time.sleep(self._chance.uniform(SHORTEST_PAUSE_S, self._longest_pause_s))
        self._note_work_directories()
        self._faults.append(fault)
        former = broker_processes(sight)
        began_s = time.monotonic()
        struck = FAULTS[fault].strike(self._scene)
        self._marks.append(Mark(began_s - self._started_s, struck.over_s - self._started_s, fault))
        replaced = {broker: former[broker] for broker in struck.brokers if struck.is_replaced}
        whole_s, self._sight = self._wait_until_whole(replaced)
        gaps_s = self._probe.longest_gaps_s(began_s)
        led = [leader in struck.brokers for leader in sight.leaders]
        observation = Observation(
            session=self.directory.name,
            mode=self._mode,
            fault=fault,
            description=struck.description,
            led_gap_s=max(
                (gap_s for gap_s, was_led in zip(gaps_s, led, strict=True) if was_led), default=0.0
            ),
            other_gap_s=max(
                (gap_s for gap_s, was_led in zip(gaps_s, led, strict=True) if not was_led), default=0.0
            ),
            back_s=whole_s - struck.over_s,
            back_since_executor_s=whole_s - max(struck.over_s, _executors_began_s(self._sight)),
        )
        self._say(
            f"{observation.description}: {observation.gap_s:.2f} s without an acknowledgement, "
            f"all in sync again after {observation.back_s:.1f} s"
        )
        return observation

    def longest_stall_ms(self) -> int:
        """Return the longest stall of an event loop of brokers and controller, by all that was logged."""
        logs = [self._scene.application.log_path, *self.directory.glob("executors/**/stderr")]
        lines = (line for log in logs for line in log.read_text(errors="replace").splitlines())
        return longest_stall_ms(lines)

    def _config(self, store: FaultyS3 | None) -> Mapping[str, str]:
        if self._tier is Tier.NONE:
            return {}
        directory = {"sparklog.remote.uri": (self.directory / "bucket").as_uri()}
        tables = table_config(self.directory) if self._tier is Tier.TABLES else {}
        return {**(directory if store is None else store.config), **CONFIG, **tables}

    def _topic_config(self) -> Mapping[str, str]:
        if self._tier is Tier.NONE:
            return {}
        return TOPIC_CONFIG | TABLE_TOPIC_CONFIG if self._tier is Tier.TABLES else TOPIC_CONFIG

    def _make_disks(self, data_directory: Path) -> Mapping[int, Disk]:
        return {
            broker: Disk(self.mark, self.directory / "disks" / name, data_directory / name)
            for broker, name in ((broker, f"broker-{broker}") for broker in range(BROKERS))
        }

    def _wait_until_whole(self, replaced: Mapping[int, psutil.Process]) -> tuple[float, Sight]:
        """Return since when the cluster is whole, and how it looks.

        The brokers of `replaced` must be other processes than these, which may still be believed in.
        """
        view = self._scene.view
        deadline_s = time.monotonic() + RECOVERY_TIMEOUT_S
        whole_s: float | None = None
        while True:
            self._scene.application.check()
            sight = view.look()
            now_s = time.monotonic()
            if view.is_whole(sight) and (not replaced or _are_others(sight, replaced)):
                whole_s = whole_s or now_s
                if now_s > whole_s + AFTERMATH_S and self._is_written_since(whole_s):
                    return whole_s, sight
            else:
                whole_s = None
            if now_s > deadline_s:
                silent = [
                    partition
                    for partition, times_s in enumerate(self._probe.acknowledged_s)
                    if not times_s or times_s[-1] < now_s - AFTERMATH_S
                ]
                raise RecoveryError(
                    f"not whole after {RECOVERY_TIMEOUT_S:.0f} s: {sight}, before: {replaced}, "
                    f"not written to: {silent}\n{self._scene.application.log_tail()}"
                )
            time.sleep(POLL_S)

    def _is_written_since(self, since_s: float) -> bool:
        return all(times_s and times_s[-1] > since_s for times_s in self._probe.acknowledged_s)

    def _judge(self, exception: BaseException | None) -> Session:
        complaints = []
        if isinstance(exception, Exception):
            complaints.append(f"{type(exception).__name__}: {exception}")
        try:
            self._probe.stop()
            self._reader.stop()
            self._say("reading everything")
            read_everything(self._bootstrap_servers, TOPIC, PARTITIONS, self._ledger)
        except Exception as error:  # the verdict is still worth having
            complaints.append(f"what was not read counts as lost, since reading failed: {error}")
        complaints += self._reader.complaints[:FAILURES_TOLD]
        complaints += self._probe.failed[:FAILURES_TOLD]
        produced: Sequence[int] | None = None
        try:
            produced = self._probe.produced
        except ProbeError as error:
            complaints.append(str(error))
        self.timeline = Timeline.of(self._probe.acknowledged_s, self._started_s, self._marks)
        return Session(
            session=self.directory.name,
            mode=self._mode,
            seed=self._seed,
            faults=tuple(self._faults),
            seconds=time.monotonic() - self._started_s,
            verdict=self._ledger.verdict(self._probe.numbers, self._probe.offsets, produced),
            complaints=tuple(complaints),
        )

    def _note_work_directories(self) -> None:
        with contextlib.suppress(psutil.Error):
            self._work_directories |= {
                Path(each.cwd()).parent for each in self._scene.application.executors()
            }

    def _keep_executors_logs(self) -> None:
        """Move what executors wrote beside the rest; a local cluster keeps it in Spark's own directory."""
        for directory in self._work_directories:
            if directory.exists():
                shutil.move(directory, self.directory / "executors" / directory.name)


def _are_others(sight: Sight, replaced: Mapping[int, psutil.Process]) -> bool:
    now = broker_processes(sight)
    return all(now.get(broker) not in (None, process) for broker, process in replaced.items())


def _executors_began_s(sight: Sight) -> float:
    """Return when the youngest executor that has a broker was started, on the monotonic clock."""
    executors = [
        executor
        for broker in broker_processes(sight).values()
        if (daemon := broker.parent()) is not None and (executor := daemon.parent()) is not None
    ]
    youngest_s: float = max(executor.create_time() for executor in executors)
    return youngest_s - time.time() + time.monotonic()
