"""The Python that runs Spark's workers, and the remedy if it is the wrong one.

Spark starts workers as PYSPARK_PYTHON says and otherwise as the first `python3` on the PATH. In a virtual
environment that is not activated, or in a notebook's kernel, that is another Python, without this package. In
local mode workers run on the driver's machine and can use the driver's interpreter. Elsewhere each host has
its own, and the error of the first worker shows whether it fits.
"""

import contextlib
import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sparklog.driver.spark.slots import is_local_mode
from sparklog.user.dataframe.source import SparklogDataSource

_DEFAULT: Final = "python3"
"""PySpark's default."""
_WRONG: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH|No module named|Cannot run program .*No such file"
    r"|reading the port number from |Bad data in \S+'s standard output"
)
"""The last two are of a daemon that ended at once, for lack of a module for instance."""


def use_drivers_interpreter(spark: SparkSession | SparkContext, context: SparkContext) -> None:
    """In local mode run workers by the driver's interpreter, unless the user has chosen another one.

    Spark's JVM resolves formats and creates sources by an interpreter from the environment of its launch. If
    that is another one, the format is registered in the session, and ends with it.
    """
    if not is_local_mode(context):
        return
    if context.pythonExec == _DEFAULT and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = context.getConf().get("spark.pyspark.python") or sys.executable or _DEFAULT
    if isinstance(spark, SparkSession):
        java_virtual_machine: Any = context._jvm
        environment = java_virtual_machine.java.lang.System
        chosen = environment.getenv("PYSPARK_DRIVER_PYTHON") or environment.getenv("PYSPARK_PYTHON")
        if not _are_one(chosen or _DEFAULT, context.pythonExec):
            # Spark 4.0 refuses it if that interpreter has the format too, which is as good.
            with contextlib.suppress(AnalysisException):
                spark.dataSource.register(SparklogDataSource)


def wrong_interpreter(context: SparkContext, cause: str) -> str | None:
    """Return the remedy if a job failed because of its workers' Python; None if not."""
    if _WRONG.search(cause) is None:
        return None
    return (
        f"the workers' Python cannot run brokers: {cause}. Spark starts them as {context.pythonExec}; this "
        f"driver is Python {platform.python_version()}, {sys.executable}. Set PYSPARK_PYTHON before Spark "
        "starts, or spark.pyspark.python for spark-submit, to a Python of the same version that has sparklog "
        "on every host (docs/deploy.md)"
    )


def _are_one(command: str, other: str) -> bool:
    """Return whether both commands run the same interpreter in the same environment."""
    found = [shutil.which(each) for each in (command, other)]
    places = [(Path(each).parent.resolve(), Path(each).resolve()) for each in found if each is not None]
    return len(places) == 2 and places[0] == places[1]
