"""A cluster that nobody stops, when the interpreter of its driver ends."""

import subprocess
import sys

import pytest

APPLICATION = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from sparklog.driver.cluster import forget_at_exit, stop_at_exit

pool = ThreadPoolExecutor(1)


class Cluster:
    def stop(self):
        print("stops", flush=True)
        try:
            print(pool.submit(lambda: "writes").result())
        except RuntimeError:
            print("cannot write")
        forget_at_exit(self)


pool.submit(int).result()  # the pool has a thread that waits for more
stop_at_exit(Cluster())
main = threading.main_thread()
if sys.argv[1] == "goes-on":
    threading.Thread(target=lambda: (main.join(), print("thread ends", flush=True))).start()
print("main ends", flush=True)
"""


@pytest.mark.parametrize(
    ("other_threads", "expected"),
    [
        ("none", ["main ends", "stops", "writes"]),
        ("goes-on", ["main ends", "thread ends", "stops", "cannot write"]),
    ],
)
def test_interpreter_that_ends_stops_the_cluster_while_there_are_threads(
    other_threads: str, expected: list[str]
) -> None:
    """The controller writes until the brokers have left; yet a thread that goes on keeps its cluster."""
    command = [sys.executable, "-c", APPLICATION, other_threads]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == expected
