"""One cluster of three brokers for every test that does not break it."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import LocalCluster

# Small sessions, so that what dies is replaced soon; nothing else differs from a user's cluster.
CONFIG = {"min.insync.replicas": "2", "num.partitions": "1"}


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """A running cluster shared by the whole test run."""
    with LocalCluster(brokers=3, config=CONFIG) as running:
        yield running


@pytest.fixture(scope="session")
def new_topic_name() -> Callable[[str], str]:
    """Return names that no other test uses."""
    numbers = itertools.count()
    return lambda prefix: f"{prefix}-{next(numbers)}"
