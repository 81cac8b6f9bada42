"""Ctrl-C as a terminal and a notebook send it, ends of an application that stops nothing itself, and logs.

In a process of its own, since a signal is one process's, and for what it prints.
"""

import re

import pytest

from tests.spark.applications import run_application

APPLICATION = """
import logging
import os
import signal
import socket
import sys
import threading
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JError

import sparklog
from sparklog.driver.spark.slots import broker_slots
from tests.cluster import wait_for
from tests.spark.sessions import spark_session
from tests.spark.test_application import listening_processes
from tests.advertised_metadata import wait_until_all_tell_of

logging.basicConfig()
os.setpgid(0, 0)  # a terminal's Ctrl-C and a notebook's interrupt are for all of a process group
produced, refused = [], []


def say(text):
    print(text, file=sys.stderr, flush=True)


def produce_one(cluster):
    # Whoever retries nothing is refused by a leader that has not heard yet that it is one.
    first = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for partition in range(3):
        first.produce("t", b"v", partition=partition)
    assert first.flush(30) == 0


def produce(cluster, over):
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "retries": 0, "linger.ms": 0})
    done = lambda error, _: (refused if error else produced).append(error)
    while not over.wait(0.005):
        producer.produce("t", b"v", on_delivery=done)
        producer.poll(0)
    producer.flush(30)


def brokers(admin):
    listed = admin.list_topics(timeout=10)
    leaders = {(each.id, each.leader) for each in listed.topics["t"].partitions.values()}
    return leaders, listening_processes({broker.port for broker in listed.brokers.values()})


def waits_for_jvm():
    innermost = sys._current_frames()[threading.main_thread().ident].f_code
    return innermost.co_filename == socket.__file__ and innermost.co_name == "readinto"


def interrupt(user_jobs):
    wait_for(user_jobs, "the job runs")
    wait_for(waits_for_jvm, "the main thread waits for it, in the middle of a call of py4j's")
    os.killpg(0, signal.SIGINT)


# Whoever started the tests in the background has it ignored, in everything below, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
with spark_session("local[6]", spark_log_level="WARN") as spark:
    context = spark.sparkContext
    tracker, over = context.statusTracker(), threading.Event()
    cluster = sparklog.start(spark)
    say("-- started")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(10)
    wait_until_all_tell_of(cluster.bootstrap_servers, "t", 3)
    produce_one(cluster)
    before = brokers(admin)

    def user_jobs():
        return sorted(tracker.getActiveJobsIds())[3:]

    def linger():
        user_jobs()
        over.wait()

    threading.Thread(target=produce, args=(cluster, over), daemon=True).start()
    # py4j keeps a connection for each; an interrupt has it close all others by way of each.
    for _ in range(4):
        threading.Thread(target=linger, daemon=True).start()
    pyspark_handler = signal.getsignal(signal.SIGINT)
    # The second is what ipykernel has while it runs a cell: Spark is told nothing.
    for handler in (pyspark_handler, signal.default_int_handler):
        signal.signal(signal.SIGINT, handler)
        threading.Thread(target=interrupt, args=(user_jobs,)).start()
        try:
            context.parallelize(range(2), 2).foreach(lambda _: time.sleep(120))
        except (KeyboardInterrupt, Py4JError):  # PySpark's own calls may not survive it
            say("-- interrupted")
        if handler is not pyspark_handler:
            context.cancelAllJobs()
        wait_for(lambda: not user_jobs(), "the job is cancelled")
        count = len(produced)
        wait_for(lambda: len(produced) > count + 10, "records are acknowledged")
        assert brokers(admin) == before
    over.set()
    assert refused == [], refused
    assert spark.range(10).count() == 10
    threads = {thread.name for thread in threading.enumerate()}
    assert {"sparklog decommission", "sparklog metrics", "sparklog tab"} <= threads, threads
    # Spark kills a cancelled task's Python after two seconds, and says so.
    wait_for(lambda: broker_slots(context).free_for_brokers() == 3, "the cancelled jobs' tasks are gone")
    say("-- stopping")
say("-- stopped")

with spark_session("local[2]", spark_log_level="WARN") as spark:
    logging.getLogger().setLevel(logging.INFO)
    sparklog.start(spark, racks=1).stop()
    logging.getLogger().setLevel(logging.WARNING)
    say("-- in detail until here")
    try:
        sparklog.start(spark, racks=1)
        say("-- exiting")
        sys.exit()
    finally:
        # Not even this: only the interpreter ends.
        spark.stop = lambda: None
"""
NOISE = re.compile(r"^(\S+ )?(WARN|WARNING|ERROR|CRITICAL)[ :]|Traceback|Exception")
OF_PYTHON = re.compile(
    r"Exception ignored in: <function _DeleteDummyThreadOnDel.*\nTraceback.*\n(  .*\n)*TypeError: .*\n"
)
"""Python before 3.13.3 prints it at its end, of threads that others have started (CPython's issue 130522)."""


def noise(printed: str) -> list[str]:
    """Return the lines that somebody would wonder about, without those that say how loaded the machine is.

    Nor what Spark says of the cancelled jobs' own tasks, which it kills some time later.
    """
    expected = ("incubator modules", "loop_lag", "PythonRunner: Incomplete task interrupted", "Lost task")
    return [
        line
        for line in OF_PYTHON.sub("", printed).splitlines()
        if NOISE.search(line) and not any(each in line for each in expected)
    ]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the application wrote to its terminal."""
    return run_application(APPLICATION, tmp_path_factory.mktemp("application")).stderr


@pytest.mark.long
@pytest.mark.timeout(240)
def test_interrupts_cancel_the_users_jobs_only_and_ends_are_quiet(printed: str) -> None:
    """All replicas died when a notebook was interrupted, and whoever stopped Spark first read 160 lines."""
    starting, _, running = printed.partition("-- started")
    assert printed.count("-- interrupted") == 2
    assert "failed, attempt" not in running
    assert noise(starting) == []
    ending = running.partition("-- stopping")[2]
    assert "-- exiting" in ending
    assert noise(ending) == []


def test_brokers_in_local_mode_log_what_the_application_wants_to_see(printed: str) -> None:
    """A notebook must not be flooded by three brokers; whoever turns logging on sees theirs, too."""
    by_default, _, afterwards = printed.partition("-- stopped")
    in_detail, _, by_default_again = afterwards.partition("-- in detail until here")
    assert " broker 0 sparklog.executor." not in by_default + by_default_again
    assert "INFO broker 0 sparklog.executor." in in_detail
