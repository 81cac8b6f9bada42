"""PySpark's daemon with a broker's code loaded: a broker that is started is forked, and imports nothing.

Spark starts a daemon for each executor with its first Python task, and has it fork a process for every task
that finds none idle. Named by `spark.python.daemon.module`, this one serves all Python tasks of the
application, and but for what is loaded it is PySpark's. Two rules come with that:

- Nothing may be loaded here that starts a thread: a fork copies the memory of all threads and only one of
  them. numpy, pyarrow and pandas do, and a broker needs none of them.
- What is loaded lasts, so the garbage collector is told to leave it alone: workers collect after each task,
  and would copy every page that they share. It does not run while that is loaded either, a sixth of the time.

It is a matter of speed only: `sparklog.start` works under any daemon.
"""

import gc

if __name__ == "__main__":
    gc.disable()

from pyspark.daemon import manager

from sparklog.executor.process import broker_task

__all__ = ["broker_task", "manager"]

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    gc.enable()
    manager()
