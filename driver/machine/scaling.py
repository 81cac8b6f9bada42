"""The next steps of a driver that gives a cluster its size: jobs to start, to end, and to replace.

Pure. The caller carries the steps out one after the other and then looks again. Every broker of the
cluster's size runs in one job of its rack. A rack's first job has the brokers of the application's start,
or of the scaling that added the rack; brokers that a rack gets later run in further jobs, since a barrier
job has a fixed number of tasks.

The rules:

- A job ends when all its brokers are drained: the controller says which are. Brokers that are neither wanted
  nor registered have nothing to drain: a growth that got no slots, or was refused, is given up at once.
- A job with drained brokers and with others is replaced by one of the others, when none of its surplus
  brokers is left to drain. Those that stay start again once, so only one such job is replaced at a time,
  and only while all brokers that stay are unfenced.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sparklog.protocol.types import BrokerId


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


def next_steps(
    jobs: Mapping[str, Sequence[BrokerId]],
    wanted: Mapping[str, Sequence[BrokerId]],
    *,
    surplus: Collection[BrokerId],
    drained: Collection[BrokerId],
    registered: Collection[BrokerId],
    unfenced: Collection[BrokerId],
) -> list[Step]:
    """Return the steps that are due.

    Args:
        jobs: The brokers of each job, by its name.
        wanted: The brokers of each rack of the cluster's size.
        surplus: The brokers beyond that size.
        drained: The surplus brokers that may end.
        registered: The brokers that the cluster has, fenced ones included.
        unfenced: The brokers that serve.

    >>> next_steps({"rack-0": [0]}, {"rack-0": [0, 1000]}, surplus=(), drained=(),
    ...            registered=(0,), unfenced=(0,))
    [StartJob(name='rack-0-broker-1000', rack='rack-0', brokers=(1000,))]
    """
    members = {each for brokers in wanted.values() for each in brokers}
    running = {each for brokers in jobs.values() for each in brokers}
    given_up = running - members - set(registered)
    leaving = given_up | set(surplus)
    may_end = given_up | set(drained)
    steps: list[Step] = []
    for rack, brokers in wanted.items():
        missing = tuple(each for each in brokers if each not in running)
        if missing:
            name = rack if rack not in jobs else f"{rack}-broker-{missing[0]}"
            steps.append(StartJob(name, rack, missing))
    replaced = False
    for name, brokers in jobs.items():
        ending = leaving.intersection(brokers)
        if not ending or not ending <= may_end:
            continue
        staying = tuple(each for each in brokers if each not in leaving)
        if not staying:
            steps.append(EndJob(name))
        elif not replaced and running - leaving <= set(unfenced):
            steps.append(ReplaceJob(name, staying))
            replaced = True
    return steps


def is_reached(
    jobs: Mapping[str, Sequence[BrokerId]],
    wanted: Mapping[str, Sequence[BrokerId]],
    *,
    surplus: Collection[BrokerId],
    unfenced: Collection[BrokerId],
) -> bool:
    """Whether exactly the wanted brokers have jobs, and serve."""
    members = {each for brokers in wanted.values() for each in brokers}
    running = {each for brokers in jobs.values() for each in brokers}
    return not surplus and running == members and members <= set(unfenced)
