"""A cluster of three brokers and a node of Apache Kafka's beside it, for the tests of this folder."""

import contextlib
from collections.abc import Iterator

import pytest

from benchmarks.java_libraries import LibrariesUnavailableError
from tests.cluster import LocalCluster
from tests.compat.ecosystem.beside import kafka_beside, our_cluster


@pytest.fixture(scope="package")
def broken_cluster() -> Iterator[LocalCluster]:
    """A cluster whose brokers may be killed."""
    with our_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def kafka_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the node of Apache Kafka's; skips where Maven does not have it."""
    with contextlib.ExitStack() as stack:
        try:
            node = stack.enter_context(kafka_beside(tmp_path_factory.mktemp("kafka")))
        except LibrariesUnavailableError as error:
            pytest.skip(str(error))
        yield node.bootstrap_servers
