"""The console's progress bar without the brokers' stages, which would fill it for ever.

How that is done, and why so, stands in `java/UsersStages.java`.
"""

from typing import Any, Self

from pyspark import SparkContext

from sparklog.driver.spark.janino import NoPlaceError, compiled, instance_of
from sparklog.driver.spark.rack import CALL_SITE
from sparklog.driver.ui.java import java_source


class UsersProgressBar:
    """The bar with users' stages only, from `attach` to `detach`."""

    def __init__(self, java_users_stages: Any) -> None:
        self._users_stages = java_users_stages

    @classmethod
    def attach(cls, context: SparkContext) -> Self:
        """Leave the brokers' stages out.

        Raises:
            NoPlaceError: there is no bar (spark.ui.showConsoleProgress).
            CompilationError: this Spark has other classes.
            Py4JError: the application is ending.
        """
        spark_context: Any = context._jsc
        java_context = spark_context.sc()
        if java_context.progressBar().isEmpty():
            raise NoPlaceError("spark.ui.showConsoleProgress is false")
        users_stages = instance_of(
            context,
            compiled(context, "sparklog.ui.UsersStages", java_source("UsersStages")),
            java_context,
            CALL_SITE,
        )
        users_stages.begin()
        return cls(users_stages)

    def detach(self) -> None:
        """Show all stages again.

        Raises:
            Py4JError: the application has ended.
        """
        self._users_stages.end()
