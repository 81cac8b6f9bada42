"""The documentation's code that needs a cluster, run against a real one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.mark import ParameterSet
from pyspark.sql import SparkSession

from tests.spark.sessions import spark_session
from tests.unit.docs import notebooks
from tests.unit.docs.notebooks import NOTEBOOKS
from tests.unit.docs.pages import PAGES, blocks, is_for_a_client, needs_spark, run

SPARK_PAGES = [page for page in PAGES if needs_spark(page) and not is_for_a_client(page)]
READ_FIRST: Final = "README.md"
"""Each page starts a cluster: the others run with the long tests."""


def in_turn(pages: Sequence[Path]) -> list[ParameterSet]:
    """Return the pages as parameters of a test."""
    return [
        pytest.param(page, id=page.name, marks=[] if page.name == READ_FIRST else pytest.mark.long)
        for page in pages
    ]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all pages; those that make one of their own get this one from Spark."""
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    with spark_session("local[6]", spark_sql_warehouse_dir=warehouse) as session:
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
