"""docs/spark-connect.md, run in a client of an application that has a Spark Connect server."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import sparklog
from tests.chaos.application import free_port
from tests.spark.sessions import REPOSITORY, spark_session

pytestmark = pytest.mark.long

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


@pytest.fixture(scope="module")
def connect_port() -> int:
    """Where the session below has a Spark Connect server."""
    return free_port()


@pytest.fixture(scope="module")
def spark(connect_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(
        "local[6]",
        spark_sql_warehouse_dir=str(tmp_path_factory.mktemp("warehouse")),
        spark_plugins="org.apache.spark.sql.connect.SparkConnectPlugin",
        spark_connect_grpc_binding_address="127.0.0.1",
        spark_connect_grpc_binding_port=str(connect_port),
    ) as session:
        yield session


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
