"""How `make test` shares the machine (pytest-xdist): what one process does in turn.

Starting Spark is most of what the tests compute, and clusters of processes are most of what they wait for.
So there is one Spark session at a time in a process of the tests, beside one application with processes of
its own, beside one cluster of processes that the tests share, beside one of those that a test breaks. The
process that is through first goes on with further sessions. Everything else is a unit a file, and fills
what is left.

These are begun first, whatever the order of collection (`--no-loadscope-reorder` keeps that of here). A
process that is through with its own takes what is left, simulations first, since they take longest; and
gives way with it to those that are not through.
"""

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.examples import FEW

TESTS: Final = Path(__file__).parent
SESSIONS: Final = "sessions"
MORE_SESSIONS: Final = "more sessions"
APPLICATIONS: Final = "applications"
CLUSTERS: Final = "clusters"
BROKEN_CLUSTERS: Final = "broken clusters"
GROUP_OF: Final = {
    Path("spark"): SESSIONS,
    **{
        Path(f"spark/test_{name}.py"): MORE_SESSIONS
        for name in (
            *("application", "brokers_that_leave", "dataframe_source", "executors", "several_hosts"),
            "streaming_source",
        )
    },
    Path("chaos"): APPLICATIONS,
    Path("spark/test_dynamic_allocation.py"): APPLICATIONS,
    Path("spark/test_interrupts.py"): APPLICATIONS,
    Path("spark/test_other_hosts.py"): APPLICATIONS,
    Path("spark/test_serve_status.py"): APPLICATIONS,
    Path("spark/test_standalone.py"): APPLICATIONS,
    Path("spark/test_users_packages.py"): APPLICATIONS,
    Path("spark/test_yarn.py"): APPLICATIONS,
    Path("zones"): BROKEN_CLUSTERS,
    Path("compat"): CLUSTERS,
    **{
        Path(f"compat/test_{name}.py"): BROKEN_CLUSTERS
        for name in (
            *("all_brokers_killed", "bad_directories", "balancing", "consumer_protocol", "data_directories"),
            *("dataframe_leader_failure", "descriptors", "failing_disks", "failover", "moves_under_kills"),
            *("new_driver", "power_cut", "restored_cluster", "sink_with_lost_partitions", "snapshots"),
            *("starvation", "tiered_copies", "tiered_failover", "tiered_kills", "unclean_start"),
        )
    },
    Path("component/test_broker_telemetry.py"): CLUSTERS,
    Path("component/test_stopped_cluster.py"): CLUSTERS,
}
"""Of files and directories; the longest path says. Most of `compat` runs against one cluster for them all."""
FIRST: Final = (APPLICATIONS, SESSIONS, BROKEN_CLUSTERS, CLUSTERS, MORE_SESSIONS)
LONGEST: Final = "simulation"
"""The directory whose files are next."""
GIVES_WAY: Final = 5
"""How nice a process of the tests is, and what it starts, once it has come to what is in no group."""
ALONE: Final = frozenset({Path("spark/test_class_archive.py"), Path("spark/test_kubernetes_pods.py")})
"""One JVM after the other starts here, without a session: that may be beside everything else."""

JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For all the JVMs that tests start, Spark's and Kafka's: none lives for long enough to be worth more."""

# Read by the `java` command itself, before what it is given.
os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)

# Hypothesis would say of an example that takes 200 ms that it fails: but the machine is shared.
settings.register_profile("shared machine", deadline=None, max_examples=FEW)
settings.load_profile("shared machine")


def group_of(file: Path) -> str:
    """Return what the tests of a file must not run beside."""
    below = file.relative_to(TESTS)
    if below not in ALONE:
        for place in (below, *below.parents):
            if place in GROUP_OF:
                return GROUP_OF[place]
    return str(below)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the groups of many tests begun before files of their own, longest first."""
    items.sort(key=lambda item: _rank(item.path))


def _rank(file: Path) -> int:
    group = group_of(file)
    if group in FIRST:
        return FIRST.index(group)
    return len(FIRST) + (file.parent.name != LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Load the tests without garbage collection: all objects of a module stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the processors to clients and brokers with their time-outs."""
    if "PYTEST_XDIST_WORKER" in os.environ and group_of(item.path) not in FIRST and os.nice(0) < GIVES_WAY:
        os.nice(GIVES_WAY)


def pytest_collection_finish() -> None:
    """Have garbage looked for in what the tests make, and not in all that was loaded for them.

    Around every test of a cluster what is held is counted, and what nobody holds any more must be gone.
    Half a second for each, with everything that pytest has collected.
    """
    gc.collect()
    gc.freeze()


class GroupScheduling(LoadScopeScheduling):
    """Gives whole groups to processes, as they come free."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(TESTS.parent / nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Part the tests by group: the marks of xdist's own loadgroup get lost in newer versions of pytest."""
    return GroupScheduling(config, log)
