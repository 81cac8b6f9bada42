"""What brokers write to the terminal that they share with an application in local mode."""

from pathlib import Path

from tests.spark.applications import run_application

APPLICATION = """
import logging
import sys
import sparklog
from tests.spark.sessions import spark_session

logging.basicConfig()
with spark_session("local[2]") as spark:
    sparklog.start(spark, racks=1).stop()
    print("now in detail", file=sys.stderr, flush=True)
    logging.getLogger().setLevel(logging.INFO)
    sparklog.start(spark, racks=1).stop()
"""


def test_brokers_in_local_mode_log_what_the_application_wants_to_see(tmp_path: Path) -> None:
    """A notebook must not be flooded by three brokers; whoever turns logging on sees theirs, too."""
    logged = run_application(APPLICATION, tmp_path).stderr
    by_default, _, in_detail = logged.partition("now in detail")
    assert " broker 0 executor." not in by_default
    assert "INFO broker 0 executor." in in_detail
