"""A wheel in an environment of its own, beside a user's packages of the names that the repository has."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.spark.applications import TIMEOUT_S
from tests.spark.sessions import REPOSITORY, SPARK_HOME
from tests.wheels import build_wheel, install

USERS_PACKAGES = {
    "pyproject.toml": """
[project]
name = "airport"
version = "1"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.hatch.build.targets.wheel]
packages = ["driver", "executor", "jobs"]
""",
    "driver/__init__.py": "SUFFIX = '!'\n",
    "executor/__init__.py": "PREFIX = 'gate '\n",
    "jobs/__init__.py": "",
    "jobs/naming.py": """
import driver
import executor

def named(value):
    return executor.PREFIX + value + driver.SUFFIX
""",
}

APPLICATION = """
import json
import driver
import executor
import jobs.naming
import psutil
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
import sparklog

# The broker has an executor to itself.
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()

def found(_=()):
    import driver, executor, jobs.naming, sparklog.driver
    yield [module.__file__ for module in (driver, executor, jobs, sparklog, sparklog.driver)]

def java_above(_):
    yield psutil.Process().parent().parent().pid  # worker, daemon, executor

@udf("string")
def named(value):
    from jobs.naming import named
    return named(value)

with sparklog.start(spark, racks=1):
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value").select(named("value").alias("value"))
    rows.write.format("sparklog").option("topic", "gates").mode("append").save()
    records = spark.read.format("sparklog").option("subscribe", "gates").load()
    read = records.select(named(records.value.cast("string"))).collect()
    one = spark.sparkContext.parallelize([0], 1)
    there, java = one.mapPartitions(found).first(), one.mapPartitions(java_above).first()
print(json.dumps({
    "values": sorted(row[0] for row in read),
    "modules": there,
    "modules of the driver": next(found()),
    "is in an executor": java != spark.sparkContext._gateway.proc.pid,
}))
spark.stop()
"""


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of an environment with both wheels."""
    directory = tmp_path_factory.mktemp("users")
    for name, text in USERS_PACKAGES.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    wheels = [build_wheel(project, directory / "dist") for project in (directory, REPOSITORY)]
    return install(directory / "environment", *wheels)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_users_packages_of_the_repositorys_names_are_the_ones_that_applications_import(
    interpreter: Path, tmp_path: Path
) -> None:
    """Many users have a package called `jobs`: the first on the path hid the other, on executors too."""
    script = tmp_path / "application.py"
    script.write_text(APPLICATION)
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [interpreter, script],
        check=False,
        cwd=tmp_path,
        env=inherited | {"SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": str(interpreter)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["values"] == [f"gate gate {number}!!" for number in range(10)]
    assert told["is in an executor"]
    names = ("driver", "executor", "jobs", "sparklog", "sparklog/driver")
    site_packages = next((interpreter.parents[1] / "lib").glob("python*/site-packages"))
    modules = [str(site_packages / name / "__init__.py") for name in names]
    assert told["modules"] == told["modules of the driver"] == modules
