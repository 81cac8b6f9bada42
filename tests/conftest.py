"""How `make test` shares the machine (pytest-xdist): what one process does in turn.

Starting Spark is most of what the tests compute, and a cluster of processes most of what they wait for. So
there is one Spark at a time, beside one cluster of processes, beside everything else, which is a unit a file.

Groups are begun in the order of collection (`--no-loadscope-reorder`): tests/chaos before tests/compat
before the many small ones, which then fill what is left.
"""

import os
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

TESTS: Final = Path(__file__).parent
SPARK: Final = ("chaos", "spark")
"""Below these everything may start a JVM with executors."""
WITHOUT_EXECUTORS: Final = (Path("spark/test_class_archive.py"),)
"""But not here, where one JVM after the other starts: that may be beside everything else."""
CLUSTERS: Final = ("compat",)
"""Below these everything runs against brokers in processes; most of it against one cluster for them all."""

JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For all the JVMs that tests start, Spark's and Kafka's: none lives for long enough to be worth more."""

# Read by the `java` command itself, before what it is given.
os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)


def group_of(file: Path) -> str:
    """Return what the tests of a file must not run beside."""
    below = file.relative_to(TESTS)
    directory, *_ = below.parts
    if directory in SPARK and below not in WITHOUT_EXECUTORS:
        return "spark"
    if directory in CLUSTERS:
        return "clusters"
    return str(below)


class GroupScheduling(LoadScopeScheduling):
    """Gives whole groups to processes, as they come free."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(TESTS.parent / nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Part the tests by group: the marks of xdist's own loadgroup get lost in newer versions of pytest."""
    return GroupScheduling(config, log)
