"""Metrics on the pages of the brokers' stages, as named accumulators (see `java/BrokerStages.java`)."""

from collections.abc import Iterable
from typing import Any, Final, Self

from pyspark import SparkContext

from sparklog.driver.spark.janino import compiled, instance_of
from sparklog.driver.ui.java import java_source
from sparklog.driver.ui.tab_source import StageText

REFRESH_MS: Final = 5_000
"""Spark refreshes the page every 10 s."""


class BrokerStages:
    """The stages' pages; belongs to one thread. The values disappear with the stages."""

    def __init__(self, java_stages: Any) -> None:
        self._stages = java_stages
        self._shown_ms: int | None = None

    @classmethod
    def attach(cls, context: SparkContext) -> Self:
        """Prepare `show`.

        Raises:
            CompilationError: this Spark has other classes.
            Py4JError: the application is ending.
        """
        spark_context: Any = context._jsc
        stages = compiled(context, "sparklog.ui.BrokerStages", java_source("BrokerStages"))
        return cls(instance_of(context, stages, spark_context.sc()))

    def show(self, stages: Iterable[StageText], now_ms: int) -> None:
        """Show the brokers' metrics on their stages' pages, at most once in `REFRESH_MS`.

        Raises:
            Py4JError: the application is ending.
        """
        if self._shown_ms is not None and now_ms - self._shown_ms < REFRESH_MS:
            return
        self._shown_ms = now_ms
        for stage in stages:
            self._stages.show(stage.stage_id, stage.text)
