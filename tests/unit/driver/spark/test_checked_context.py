"""What may be handed to `sparklog.start`."""

import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession

from sparklog.driver.spark.preflight import checked_context
from sparklog.hosting import StartError


def test_connect_session_is_refused_with_where_to_start_instead() -> None:
    """It has no SparkContext, and what it said of that named none of ours."""
    session = ConnectSession.__new__(ConnectSession)  # without a server to connect to
    with pytest.raises(StartError, match=r"Spark Connect session.*in the application that serves Connect"):
        checked_context(session)


def test_what_is_no_session_is_refused() -> None:
    """A builder that was not asked for its session, for instance."""
    with pytest.raises(StartError, match="takes a SparkSession or a SparkContext, not 'spark'"):
        checked_context("spark")
