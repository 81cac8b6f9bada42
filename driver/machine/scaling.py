"""The next steps of a driver that gives a cluster its size: jobs to start, to end, and to replace.

Pure. The caller carries out one step (`Retries.due`) and then looks again: a step takes up to a minute, in
which the size may be given up. Every broker of the cluster's size runs in one job of its rack. A rack's first
job has the brokers of the application's start, or of the scaling that added the rack; brokers that a rack
gets later run in further jobs, since a barrier job has a fixed number of tasks.

The rules:

- A job ends when all its brokers are drained: the controller says which are. Brokers that are neither wanted
  nor registered have nothing to drain: a growth that got no slots, or was refused, is given up at once.
- A broker beyond the size that holds replicas and has no job, after a start of the application, gets one, so
  that it can be drained.
- A job with drained brokers and with others is replaced by one of the others, when none of its surplus
  brokers is left to drain. Those that stay start again once, so only one such job is replaced at a time,
  and only while all replicas and voters that stay are in sync, and the brokers of the last replaced job
  registered again: one that ends and starts again within one look was in sync all the time.
- A job none of whose brokers serves is replaced at once: it may wait for more executors than there are.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.protocol.types import BrokerId

BACKOFF: Final = ExponentialBackoff(first_ms=1_000, max_ms=30_000)


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start a job with these brokers of the rack."""

    name: str
    rack: str
    brokers: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class EndJob:
    """Let all brokers of a job shut down, and do not start it again."""

    name: str


@dataclass(frozen=True, slots=True)
class ReplaceJob:
    """End a job, and start it with these brokers alone."""

    name: str
    brokers: tuple[BrokerId, ...]


Step: TypeAlias = StartJob | EndJob | ReplaceJob


def brokers_of(groups: Mapping[str, Sequence[BrokerId]]) -> set[BrokerId]:
    return {each for brokers in groups.values() for each in brokers}


def next_steps(
    jobs: Mapping[str, Sequence[BrokerId]],
    wanted: Mapping[str, Sequence[BrokerId]],
    *,
    surplus: Collection[BrokerId],
    drained: Collection[BrokerId],
    registered: Collection[BrokerId],
    unfenced: Collection[BrokerId],
    may_restart: bool = True,
    restarting: Collection[BrokerId] = (),
    returning: Mapping[str, Sequence[BrokerId]] = MappingProxyType({}),
) -> list[Step]:
    """Return the possible steps; those that end jobs first, since they free slots.

    Args:
        jobs: The brokers of each job, by its name.
        wanted: The brokers of each rack of the cluster's size.
        surplus: The brokers beyond that size.
        drained: The surplus brokers that may end.
        registered: The brokers that the cluster has, fenced ones included.
        unfenced: The brokers that serve.
        may_restart: Whether all replicas and voters that stay are in sync.
        restarting: The brokers of replaced jobs that are not registered again.
        returning: The brokers of each rack beyond the size that hold replicas and do not serve.

    >>> next_steps({"rack-0": [0]}, {"rack-0": [0, 1000]}, surplus=(), drained=(),
    ...            registered=(0,), unfenced=(0,))
    [StartJob(name='rack-0-broker-1000', rack='rack-0', brokers=(1000,))]
    """
    members, running = brokers_of(wanted), brokers_of(jobs)
    given_up = running - members - set(registered)
    leaving = given_up | set(surplus)
    may_end = given_up | set(drained)
    are_back = (running - leaving).isdisjoint(restarting)
    starts: list[Step] = []
    for rack in (*wanted, *(each for each in returning if each not in wanted)):
        needed = (*wanted.get(rack, ()), *returning.get(rack, ()))
        missing = tuple(each for each in needed if each not in running)
        if missing:
            starts.append(starting(rack, missing, jobs))
    ends: list[Step] = []
    replacements: list[Step] = []
    for name, brokers in jobs.items():
        ending = leaving.intersection(brokers)
        if not ending or not ending <= may_end:
            continue
        staying = tuple(each for each in brokers if each not in leaving)
        if not staying:
            ends.append(EndJob(name))
        elif (may_restart and are_back) or set(unfenced).isdisjoint(brokers):
            replacements.append(ReplaceJob(name, staying))
    return ends + starts + replacements[:1]


def without_jobs(
    jobs: Mapping[str, Sequence[BrokerId]],
    *,
    surplus: Mapping[BrokerId, int],
    unfenced: Collection[BrokerId],
) -> set[BrokerId]:
    """Return the surplus brokers that no job runs or will run again: they hold no replica and do not serve.

    They are left by an application that was lost while its cluster became smaller.

    >>> without_jobs({"rack-0": [0]}, surplus={1: 0, 2: 5}, unfenced=(0,))
    {1}
    """
    empty = {each for each, held in surplus.items() if not held}
    return empty - brokers_of(jobs) - set(unfenced)


def starting(rack: str, brokers: Sequence[BrokerId], jobs: Collection[str]) -> StartJob:
    """Return the start of a rack's job beside those that have these names.

    >>> starting("rack-1", [3], ["rack-0", "rack-1"])
    StartJob(name='rack-1-broker-3', rack='rack-1', brokers=(3,))
    """
    return StartJob(rack if rack not in jobs else f"{rack}-broker-{brokers[0]}", rack, tuple(brokers))


class Retries:
    """The back-off of each job's steps: one that fails does not keep the others from being carried out."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        """The number of failures in a row, by job."""
        self._due_ms: dict[str, int] = {}

    def due(self, steps: Sequence[Step], now_ms: int) -> Step | None:
        """Return the first step that has not failed, or whose back-off is over.

        Failures of jobs without a possible step are forgotten.
        """
        for given_up in self._failures.keys() - {each.name for each in steps}:
            self._forget(given_up)
        return next((each for each in steps if self._due_ms.get(each.name, now_ms) <= now_ms), None)

    def succeeded(self, step: Step) -> None:
        self._forget(step.name)

    def _forget(self, job: str) -> None:
        self._failures.pop(job, None)
        self._due_ms.pop(job, None)

    def failed(self, step: Step, now_ms: int) -> None:
        failures = self._failures.get(step.name, 0)
        self._due_ms[step.name] = now_ms + BACKOFF.pause_ms(failures)
        self._failures[step.name] = failures + 1


def is_reached(
    jobs: Mapping[str, Sequence[BrokerId]],
    wanted: Mapping[str, Sequence[BrokerId]],
    *,
    surplus: Collection[BrokerId],
    unfenced: Collection[BrokerId],
) -> bool:
    """Whether exactly the wanted brokers have jobs, and serve."""
    members, running = brokers_of(wanted), brokers_of(jobs)
    return not surplus and running == members and members <= set(unfenced)
