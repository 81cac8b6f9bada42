"""One session and one cluster for all of these tests; each has topics of its own."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.cluster import LocalCluster
from tests.spark.sessions import default_cluster, spark_session


@pytest.fixture(scope="package")
def bootstrap_servers() -> Iterator[str]:
    with LocalCluster(brokers=1) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="package")
def spark(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    with (
        spark_session("local[2]", spark_sql_warehouse_dir=warehouse) as session,
        default_cluster(session, bootstrap_servers),
    ):
        yield session
