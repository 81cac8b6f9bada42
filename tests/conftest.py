"""How `make test` shares the machine (pytest-xdist, `--dist loadgroup`): what one process does in turn.

Starting Spark is most of what the tests compute, and a cluster of processes most of what they wait for. So
there is one Spark at a time, beside one cluster of processes, beside everything else, which is a unit a file.

Groups are begun in the order of collection (`--no-loadscope-reorder`): tests/chaos before tests/compat
before the many small ones, which then fill what is left.
"""

import os
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
SPARK: Final = ("chaos", "spark")
"""Below these everything may start a JVM with executors."""
CLUSTERS: Final = ("compat",)
"""Below these everything runs against brokers in processes; most of it against one cluster for them all."""

JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For all the JVMs that tests start, Spark's and Kafka's: none lives for long enough to be worth more."""

# Read by the `java` command itself, before what it is given.
os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)


def group_of(file: Path) -> str:
    """Return what the tests of a file must not run beside."""
    directory, *_ = file.relative_to(TESTS).parts
    if directory in SPARK:
        return "spark"
    if directory in CLUSTERS:
        return "clusters"
    return str(file.relative_to(TESTS))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say of each test which group it belongs to."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item.path)))
