"""PySpark's daemon with a broker's modules imported: a broker's process is forked, and imports nothing.

Spark starts a daemon for each executor with its first Python task; it forks a process for every task that
finds none idle. Named by `spark.python.daemon.module`, this one serves all Python tasks of the application;
except for the imports it is PySpark's. Two rules follow:

- No imported module may start a thread: a fork copies the memory of all threads and only one of them. numpy,
  pyarrow and pandas do, and a broker needs none of them. (PySpark's own daemon imports numpy before 4.2.)
- Imported objects last, so they are frozen for the garbage collector: workers collect after each task, and
  would copy every shared page. The collector is off during the imports, which saves a sixth of their time.

It is a matter of speed only: `sparklog.start` works under any daemon.
"""

import gc

if __name__ == "__main__":
    gc.disable()

from pyspark.daemon import manager

from sparklog.executor.process import broker_task as broker_task

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    gc.enable()
    manager()
