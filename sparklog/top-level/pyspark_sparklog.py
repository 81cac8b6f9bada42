"""Makes the format `sparklog` known to every Spark session whose Python has this module.

Spark looks for modules that are called `pyspark_*`, once an application, when a data source is first named,
and takes each one's `DefaultSource`. Installations have this file beside the packages (pyproject.toml).
"""

from sparklog.user.dataframe.source import SparklogDataSource

DefaultSource = SparklogDataSource
