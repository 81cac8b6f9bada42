"""The daemon that brokers are forked from, as a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

from sparklog.executor.process import daemon

REPOSITORY = Path(__file__).parents[2]

LOADED = """
import os, sys
import sparklog.executor.process.daemon
import pyspark.daemon
threads = len(os.listdir("/proc/self/task"))
heavy = {"hypothesis", "numpy", "pyarrow", "pandas", "pyspark.worker"} & set(sys.modules)
task = "sparklog.executor.process.broker_task"
broker = {"sparklog.executor.broker", task, "sparklog.node.storage.log.log"} - set(sys.modules)
print(threads, heavy, broker, sparklog.executor.process.daemon.manager is pyspark.daemon.manager)
"""


def test_daemon_with_a_brokers_code_loaded_has_one_thread_and_is_otherwise_pysparks() -> None:
    """Workers are forked from it: a lock that another thread holds would stay locked in each of them."""
    done = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True)
    assert done.stdout == "1 set() set() True\n"


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
