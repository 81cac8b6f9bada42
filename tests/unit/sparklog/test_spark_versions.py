"""Which versions of PySpark are taken, and what a version lacks."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.driver.ui.java import java_source
from sparklog.spark_versions import SparkVersion, java_for, why_too_old

START = """
import sparklog
try:
    sparklog.start(None)
except sparklog.StartError as error:
    print(error)
"""


def test_start_on_a_pyspark_that_is_too_old_names_it_and_the_remedy(tmp_path: Path) -> None:
    """PySpark 3.5 has no data sources in Python: an ImportError deep in this package was all that it said."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.9'")
    told = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}){START}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert told.startswith(f"PySpark 3.5.9 in {tmp_path / 'pyspark'} is too old: sparklog needs 4.0 or newer")
    assert "pip install 'pyspark>=4.0,<5'" in told


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0", "4.1.0.dev0"])
def test_supported_version_is_not_refused(version: str) -> None:
    """From 4.0 on."""
    assert why_too_old(version) is None


def test_tab_before_spark_4_2_has_no_nonce_and_one_argument_less() -> None:
    """Spark's CspNonce, and the eighth parameter of headerSparkPage, came with 4.2."""
    source = java_source("LogTab")
    older = java_for(SparkVersion(4, 1), source)
    assert java_for(SparkVersion(4, 2), source) == source
    assert "CspNonce" in source and "CspNonce" not in older
    assert "false, // since" in source and "false, // since" not in older
