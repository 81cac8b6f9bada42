"""sparklog: a Kafka cluster that lives inside one Spark application.

import sparklog

cluster = sparklog.start(spark)
cluster.bootstrap_servers        # for any Kafka client
df.write.format("sparklog").option("topic", "events").mode("append").save()
spark.read.format("sparklog").option("subscribe", "events").load()
"""

from sparklog import kio_alone  # noqa: F401 - before anything of kio
from sparklog.hosting import Cluster, StartError, start

__all__ = ["Cluster", "StartError", "start"]
