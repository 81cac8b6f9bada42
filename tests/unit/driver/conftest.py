"""What the driver's unit tests have in common."""

import pytest
from pyspark import SparkContext


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no JVM to talk to, though an earlier test of this process may have left one.

    Spark's threads ask for the running application as soon as there is a JVM.
    """
    monkeypatch.setattr(SparkContext, "_gateway", None)
