"""The documentation's code that needs a cluster, run against a real one."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.mark import ParameterSet
from pyspark.sql import SparkSession

import sparklog
from tests.chaos.application import free_port
from tests.spark.sessions import REPOSITORY, spark_session
from tests.unit.docs import notebooks
from tests.unit.docs.notebooks import NOTEBOOKS
from tests.unit.docs.pages import PAGES, blocks, is_for_a_client, needs_spark, run

CONNECT_PAGE = REPOSITORY / "docs" / "spark-connect.md"
PORT_IN_THE_PAGE = "15002"
CLIENT = """
import sys
from pathlib import Path

from tests.unit.docs.pages import blocks, run

page, port_in_the_page, port = sys.argv[1:]
namespace = {}
for block in blocks(Path(page)):
    run(block._replace(source=block.source.replace(port_in_the_page, port)), namespace)
"""
SPARK_PAGES = [page for page in PAGES if needs_spark(page) and not is_for_a_client(page)]
READ_FIRST: Final = frozenset({"README.md", "notebook.ipynb"})
"""Each page starts a cluster: the others run with the long tests."""


def in_turn(pages: Sequence[Path]) -> list[ParameterSet]:
    """Return the pages as parameters of a test."""
    return [
        pytest.param(page, id=page.name, marks=[] if page.name in READ_FIRST else pytest.mark.long)
        for page in pages
    ]


@pytest.fixture(scope="module")
def connect_port() -> int:
    """Where the session below has a Spark Connect server."""
    return free_port()


@pytest.fixture(scope="module")
def spark(connect_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all pages; those that make one of their own get this one from Spark."""
    with spark_session(
        "local[6]",
        spark_sql_warehouse_dir=str(tmp_path_factory.mktemp("warehouse")),
        spark_plugins="org.apache.spark.sql.connect.SparkConnectPlugin",
        spark_connect_grpc_binding_address="127.0.0.1",
        spark_connect_grpc_binding_port=str(connect_port),
    ) as session:
        yield session


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", in_turn(SPARK_PAGES))
def test_page_with_a_cluster_runs_from_top_to_bottom(page: Path, spark: SparkSession) -> None:
    """A reader pastes the blocks one after the other into a notebook."""
    namespace: dict[str, Any] = {"spark": spark}
    try:
        for block in blocks(page):
            run(block, namespace)
    finally:
        if "cluster" in namespace:
            namespace["cluster"].stop()


@pytest.mark.parametrize("notebook", in_turn(NOTEBOOKS))
def test_notebook_shows_what_it_says_it_shows(notebook: Path, spark: SparkSession) -> None:
    """Who opens it on a forge reads outputs that nobody typed."""
    namespace: dict[str, Any] = {}
    try:
        notebooks.run(notebook, namespace)
    finally:
        if "cluster" in namespace:
            namespace["cluster"].stop()


def test_connect_page_runs_in_a_client_of_the_application(spark: SparkSession, connect_port: int) -> None:
    """A client that has no address and nothing of the cluster reads, writes and streams."""
    with sparklog.start(spark, racks=1):
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, str(CONNECT_PAGE), PORT_IN_THE_PAGE, str(connect_port)],
            check=False,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=90,
        )
    assert done.returncode == 0, done.stderr
