"""The daemon that brokers are forked from, as a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

from sparklog.executor.process import daemon

REPOSITORY = Path(__file__).parents[2]

LOADED = """
import os, sys

def threads():
    return len(os.listdir("/proc/self/task"))

def heavy():
    return {"hypothesis", "numpy", "pyarrow", "pandas", "pyspark.worker"} & set(sys.modules)

import pyspark.daemon
threads_of_pyspark, heavy_of_pyspark = threads(), heavy()
import sparklog.executor.process.daemon
task = "sparklog.executor.process.broker_task"
broker = {"sparklog.executor.broker", task, "sparklog.node.storage.log.log"} - set(sys.modules)
is_pysparks = sparklog.executor.process.daemon.manager is pyspark.daemon.manager
print(threads() - threads_of_pyspark, heavy() - heavy_of_pyspark, broker, is_pysparks)
"""


def test_daemon_with_a_brokers_code_loaded_has_no_thread_more_and_is_otherwise_pysparks() -> None:
    """Workers are forked from it: a lock that another thread holds would stay locked in each of them.

    PySpark's own has one thread, before 4.2 two: it imports numpy.
    """
    done = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True)
    assert done.stdout == "0 set() set() True\n"


STARTED = """
import gc, runpy
import pyspark.daemon
pyspark.daemon.manager = lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000)
runpy.run_module("sparklog.executor.process.daemon", run_name="__main__")
"""


def test_daemon_when_it_begins_to_fork_has_frozen_what_it_loaded_and_collects_garbage() -> None:
    """Its workers inherit both: without collections a broker's cycles would never go."""
    done = subprocess.run([sys.executable, "-c", STARTED], check=True, capture_output=True, text=True)
    assert done.stdout == "True True\n"


def test_daemon_that_the_properties_file_names_is_in_the_wheel() -> None:
    """In the repository a module at its top level is found, too; the wheel has none of that name."""
    properties = (REPOSITORY / "conf" / "spark-defaults.conf").read_text()
    (module,) = re.findall(r"^spark\.python\.daemon\.module\s+(\S+)$", properties, re.MULTILINE)
    assert module == daemon.__name__
