"""A cluster beside Spark's dynamic allocation, on a Master and Workers as processes.

Brokers have executors of their own, which stay, while those of the user's jobs come and go.
"""

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import sparklog
from tests.cluster import wait_for
from tests.spark.applications import run_application
from tests.spark.sessions import REPOSITORY, spark_session
from tests.spark.standalone import spark_properties, standalone_cluster
from tests.spark.test_application import consume, listening_processes, produce

USERS_EXECUTORS: Final = 4
APPLICATION: Final = """
import sys
from pathlib import Path
from tests.spark.test_dynamic_allocation import serve_beside_growing_jobs
serve_beside_growing_jobs(sys.argv[1], Path(sys.argv[2]))
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_brokers_stay_while_the_executors_of_jobs_grow_from_none_to_four_and_back(tmp_path: Path) -> None:
    """Most shared clusters have dynamic allocation on; a broker on an idle executor must not be removed."""
    with standalone_cluster(tmp_path, ("127.0.0.1",) * 2, worker_size=(4, "4g")) as master:
        # Properties of a process's first session are those of its JVM, and so of all after it.
        done = run_application(APPLICATION, tmp_path, master, str(tmp_path / "kept"))
    sys.stdout.write(done.stdout)


def serve_beside_growing_jobs(master: str, kept: Path) -> None:
    """Run jobs beside a cluster under a producer, kill brokers, and start a cluster over directories."""
    properties = {
        key: value for key, value in spark_properties().items() if "executor.resource" not in key
    } | {
        "spark.executor.cores": "1",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": str(USERS_EXECUTORS),
        "spark.dynamicAllocation.executorIdleTimeout": "4s",
        "spark.dynamicAllocation.shuffleTracking.timeout": "3s",
        "spark.decommission.enabled": "true",
    }
    names = {key.replace(".", "_"): value for key, value in properties.items()}
    with spark_session(master, **names) as session:
        begun_s = time.monotonic()
        with sparklog.start(session) as cluster:
            print(f"started in {time.monotonic() - begun_s:.1f} s")
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            admin.create_topics([NewTopic("events", 3, 3)])["events"].result(10)
            grow_and_shrink(session, cluster.bootstrap_servers)
            lose_brokers(cluster.bootstrap_servers)
        begun_s = time.monotonic()
        start_over_directories(session, kept)
        print(f"started twice over directories in {time.monotonic() - begun_s:.1f} s")


def grow_and_shrink(session: SparkSession, bootstrap_servers: str) -> None:
    """Run a job of many tasks and wait until its executors have gone, under a producer."""
    before = broker_processes(bootstrap_servers)
    assert len(before) == 3 and users_executors(session) == 0
    seen: list[int] = []
    with producing(bootstrap_servers) as longest_pause:
        job = threading.Thread(target=shuffle, args=(session,))
        job.start()
        wait_for(
            lambda: seen.append(users_executors(session)) or seen[-1] == USERS_EXECUTORS,
            "the job has its executors",
            timeout_s=60,
        )
        job.join(60)
        assert not job.is_alive()
        wait_for(lambda: users_executors(session) == 0, "idle executors are removed", timeout_s=60)
        pause_s, ended_s, delay_s = longest_pause()
        ended = time.strftime("%H:%M:%S", time.localtime(ended_s))
        print(
            f"jobs had {min(seen)} to {max(seen)} to 0 executors, longest pause {pause_s:.3f} s "
            f"until {ended}, the producer itself was late by up to {delay_s:.3f} s"
        )
    assert broker_processes(bootstrap_servers) == before


def lose_brokers(bootstrap_servers: str) -> None:
    """Have three brokers leave; Spark itself would start their tasks again, or leave them where they are."""

    def executor_of(broker: psutil.Process) -> psutil.Process:
        return broker.parent().parent()

    ways: dict[str, Callable[[psutil.Process], None]] = {
        "kill of its executor": lambda broker: executor_of(broker).kill(),
        "kill of its process": lambda broker: broker.kill(),
        "decommission of its executor": lambda broker: executor_of(broker).send_signal(signal.SIGPWR),
    }
    for what, lose in ways.items():
        before = broker_processes(bootstrap_servers)
        lost = min(before)
        begun_s = time.monotonic()
        lose(psutil.Process(lost))

        def is_back(lost: int = lost, before: set[int] = before) -> bool:
            now = broker_processes(bootstrap_servers)
            return len(now) == 3 and lost not in now and len(now & before) == 2

        wait_for(is_back, "another process is the broker", timeout_s=60)
        print(f"back {time.monotonic() - begun_s:.1f} s after the {what}")
        wait_for(lambda: smallest_isr(bootstrap_servers) == 3, "it is in sync", timeout_s=60)


def start_over_directories(session: SparkSession, kept: Path) -> None:
    """Start a rack of two brokers twice over the same directories: each is a job, and finds its own."""
    for records in (100, 200):
        with sparklog.start(session, racks=1, brokers_per_rack=2, log_directories=kept) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            if records == 100:
                admin.create_topics([NewTopic("kept", 1, 2)])["kept"].result(10)
            produce(cluster.bootstrap_servers, "kept", 100)
            expected = [str(number).encode() for number in range(100)] * (records // 100)
            assert consume(cluster.bootstrap_servers, "kept", records) == expected
            assert {"rack-0-broker-0", "rack-0-broker-1"} <= running_groups(session)


def running_groups(session: SparkSession) -> set[str]:
    """Return the groups of the application's running jobs, without the cluster's name."""
    context: Any = session.sparkContext._jsc.sc()
    jobs = context.statusStore().jobsList(None).iterator()
    running = set()
    while jobs.hasNext():
        job = jobs.next()
        if str(job.status()) == "RUNNING" and job.jobGroup().isDefined():
            running.add(re.sub(r"^sparklog-.{22}-", "", str(job.jobGroup().get())))
    return running


def shuffle(session: SparkSession) -> None:
    """Run a job with shuffle files, whose first stage takes four executors for some seconds."""

    def slow(number: int) -> tuple[int, int]:
        time.sleep(1.0)
        return number % 2, number

    numbers = session.sparkContext.parallelize(range(40), 40).map(slow)
    assert dict(numbers.reduceByKey(max, 2).collect()) == {0: 38, 1: 39}


def users_executors(session: SparkSession) -> int:
    """Return the number of executors of Spark's default profile, the driver not counted."""
    listed: Any = session.sparkContext._jsc.sc().statusStore().executorList(True).iterator()
    profiles: Counter[int] = Counter()
    while listed.hasNext():
        executor = listed.next()
        if str(executor.id()) != "driver":
            profiles[int(executor.resourceProfileId())] += 1
    return profiles[0]


def broker_processes(bootstrap_servers: str) -> set[int]:
    """Return the brokers' processes, as a client of its own finds them."""
    brokers = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=10).brokers
    return listening_processes({broker.port for broker in brokers.values()})


def smallest_isr(bootstrap_servers: str) -> int:
    topics = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics("events", timeout=10).topics
    return min(len(partition.isrs) for partition in topics["events"].partitions.values())


@contextlib.contextmanager
def producing(bootstrap_servers: str) -> Iterator[Callable[[], tuple[float, float, float]]]:
    """Produce to every partition from another process, until its longest pause is asked for.

    With the end of the pause since the epoch, and the longest delay of the process, all in seconds.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "tests.spark.steady_producer", bootstrap_servers, "events", "3"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as producer:
        try:
            assert producer.stdout is not None
            assert producer.stdout.readline() == "producing\n"
            yield lambda: longest_of(producer.communicate(timeout=60)[0])
        finally:
            producer.kill()


def longest_of(printed: str) -> tuple[float, float, float]:
    pause, ended, delay = printed.split()
    return float(pause), float(ended), float(delay)
