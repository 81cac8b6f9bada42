"""The modules that broker and controller load before they know their configuration."""

import subprocess
import sys

LOAD = """
import sys
import pyspark  # until 4.1 it loads numpy itself
loaded = set(sys.modules)
import sparklog.executor.broker, sparklog.executor.process.broker_task
print(*sorted({"numpy", "obstore", "pyarrow"} & (set(sys.modules) - loaded)))
"""


def test_broker_without_a_tier_loads_neither_parquet_nor_a_client_of_stores() -> None:
    """Each broker would pay memory and a slower start for them, also without an object store."""
    loaded = subprocess.run([sys.executable, "-c", LOAD], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []


def test_controller_without_tables_loads_neither_parquet_nor_iceberg() -> None:
    """The driver's controller pays a second and 100 MB for pyiceberg, and only where topics are tables."""
    load = """
import sys
import sparklog.driver.controller.server
print(*sorted({"numpy", "obstore", "pyarrow", "pyiceberg"} & set(sys.modules)))
"""
    loaded = subprocess.run([sys.executable, "-c", load], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []
