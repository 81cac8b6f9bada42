"""The documentation's code that needs a cluster, run against a real one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.sessions import spark_session
from tests.unit.docs.pages import PAGES, blocks, needs_spark, run


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One session for all pages; those that make one of their own get this one from Spark."""
    with spark_session("local[6]") as session:
        yield session


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [page for page in PAGES if needs_spark(page)], ids=lambda page: page.name)
def test_page_with_a_cluster_runs_from_top_to_bottom(page: Path, spark: SparkSession) -> None:
    """A reader pastes the blocks one after the other into a notebook."""
    namespace: dict[str, Any] = {"spark": spark}
    try:
        for block in blocks(page):
            run(block, namespace)
    finally:
        if "cluster" in namespace:
            namespace["cluster"].stop()
