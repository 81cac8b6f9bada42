"""What a notebook does to a cluster: cells that run twice, jobs that are cancelled, stops in every order."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

import sparklog
from sparklog.driver.spark.preflight import check_slots
from sparklog.driver.spark.rack import Rack
from sparklog.driver.spark.slots import broker_slots
from sparklog.hosting import TooFewTaskSlotsError
from tests.advertised_metadata import wait_until_all_tell_of
from tests.cluster import wait_for
from tests.spark.sessions import spark_session
from tests.spark.test_application import consume, listening_processes, produce
from tests.spark.test_controller_process import leader_epochs, producing

SLOTS = 6
BUSY_S = 5


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Room for three brokers and some tasks."""
    # A JVM keeps the properties of the session that launched it, which another test may have.
    with spark_session(f"local[{SLOTS}]", spark_dynamicAllocation_enabled="false") as session:
        yield session


@pytest.fixture(scope="module")
def cluster(spark: SparkSession) -> Iterator[sparklog.Cluster]:
    """A cluster that only the last test of this module stops; each other one leaves it as it was."""
    with sparklog.start(spark) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("events", 3, 3)])["events"].result(10)
        produce(running.bootstrap_servers, "events", 10)
        yield running


def brokers(cluster: sparklog.Cluster) -> tuple[set[int], set[tuple[int, int]]]:
    """Return the brokers' processes, and who leads which partition of `events`."""
    listed = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10)
    processes = listening_processes({broker.port for broker in listed.brokers.values()})
    partitions = listed.topics["events"].partitions.values()
    return processes, {(partition.id, partition.leader) for partition in partitions}


def sleeping_job(spark: SparkSession, tasks: int) -> Callable[[], object]:
    """Return what runs a job for longer than any test."""

    def sleep(_: object) -> None:
        time.sleep(120)

    return lambda: spark.sparkContext.parallelize(range(tasks), tasks).foreach(sleep)


def user_jobs(spark: SparkSession) -> list[int]:
    """Return the active jobs beside those of the three racks."""
    return sorted(spark.sparkContext.statusTracker().getActiveJobsIds())[3:]


def test_second_start_gets_the_running_cluster(spark: SparkSession, cluster: sparklog.Cluster) -> None:
    """A cell that is run twice must not start another: it took the last slots, and the format meant it."""
    assert sparklog.start(spark) is cluster
    same = {"default.replication.factor": "3", "num.partitions": 1}
    assert sparklog.start(spark.newSession(), racks=3, config=same) is cluster
    assert sparklog.start(spark.sparkContext) is cluster
    assert spark.range(10).count() == 10


def test_cell_that_keeps_the_interpreter_silences_nothing(cluster: sparklog.Cluster) -> None:
    """A sort of many numbers kept it for 5 s, all leases ran out, and every partition was silent for 4 s."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = NewTopic("beside", 3, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[topic.topic].result(10)
    wait_until_all_tell_of(cluster.bootstrap_servers, topic.topic, 3)
    before = leader_epochs(cluster, topic.topic)
    with producing(cluster, topic.topic) as silences:
        ctypes.PyDLL(None).sleep(BUSY_S)  # a call into C that does not let go of it
    assert silences[0] < BUSY_S / 2
    assert leader_epochs(cluster, topic.topic) == before


def test_rows_are_written_from_a_thread_of_the_user_s_own(
    spark: SparkSession, cluster: sparklog.Cluster, tmp_path: Path
) -> None:
    """Spark finds formats in Python by the session of the calling thread: DATA_SOURCE_NOT_FOUND."""
    numbers = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    batch = numbers.write.format("sparklog").option("topic", "threads").mode("append")
    events = spark.readStream.format("sparklog").option("subscribe", "events")
    rows = events.option("startingOffsets", "earliest").load().select("value")
    stream = rows.writeStream.format("sparklog").option("topic", "threads").trigger(availableNow=True)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(batch.save).result(60)
        query = thread.submit(stream.option("checkpointLocation", str(tmp_path)).start).result(60)
        assert query.awaitTermination(60)
    assert spark.read.format("sparklog").option("subscribe", "threads").load().count() == 20


def test_with_block_of_a_start_that_found_the_cluster_running_leaves_it_running(
    spark: SparkSession, cluster: sparklog.Cluster
) -> None:
    """A library's block in the middle of a notebook took the notebook's cluster away."""
    before = brokers(cluster)
    with sparklog.start(spark) as found:
        assert found is cluster
    assert brokers(cluster) == before


def test_second_start_of_something_else_is_refused_with_what_differs(
    spark: SparkSession, cluster: sparklog.Cluster, tmp_path: Path
) -> None:
    """Whoever asks for directories must not get a cluster that removes its own."""
    with pytest.raises(sparklog.StartError) as raised:
        sparklog.start(spark, log_directories=tmp_path, config={"num.partitions": 8})
    assert cluster.bootstrap_servers in str(raised.value)
    assert f"log.dirs is unset, not {tmp_path}" in str(raised.value)
    assert "num.partitions is 1, not 8" in str(raised.value)
    assert "racks" not in str(raised.value)


def test_cancelling_all_jobs_spares_the_brokers(spark: SparkSession, cluster: sparklog.Cluster) -> None:
    """By all jobs a user means his own: all replicas died at once, and nobody could write for seconds."""
    before = brokers(cluster)
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(sleeping_job(spark, 2))
        wait_for(lambda: user_jobs(spark), "the job runs")
        spark.sparkContext.cancelAllJobs()
        assert "cancelled" in str(running.exception(timeout=30))
    assert brokers(cluster) == before
    assert len(consume(cluster.bootstrap_servers, "events", 10, partitions=3)) == 10


def test_job_that_was_only_just_submitted_is_cancelled_with_the_others(
    spark: SparkSession, cluster: sparklog.Cluster
) -> None:
    """Spark's status store hears of a job a moment later; who asks it alone overlooks the newest."""
    before = brokers(cluster)
    context = spark.sparkContext
    for _ in range(20):
        job = context.parallelize(range(2), 2).map(lambda _: time.sleep(120))._jrdd.countAsync()
        context.cancelAllJobs()
        with pytest.raises(Exception, match="cancelled"):
            job.get()
    assert brokers(cluster) == before


def test_interrupting_what_the_session_runs_spares_the_brokers(
    spark: SparkSession, cluster: sparklog.Cluster
) -> None:
    """This is how Spark 4 wants it done; it goes by the tags of a session."""
    before = brokers(cluster)

    def sleep(batches: Iterator[object]) -> Iterator[object]:
        for batch in batches:
            time.sleep(120)
            yield batch

    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(spark.range(1).mapInArrow(sleep, "id long").collect)  # type: ignore[arg-type]
        wait_for(lambda: user_jobs(spark), "the query runs")
        wait_for(lambda: spark.interruptAll() or running.done(), "the query is interrupted")
        assert "cancelled" in str(running.exception(timeout=30))
    assert brokers(cluster) == before


def test_start_beside_jobs_that_take_the_slots_is_refused_in_time(
    spark: SparkSession, cluster: sparklog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is free counts, not what there is: brokers without slots would be waited for, for minutes."""
    slots = broker_slots(spark.sparkContext)
    wait_for(lambda: slots.free_for_brokers() == SLOTS - 3, "the tasks of other tests have ended")
    check_slots(slots, SLOTS - 4)
    monkeypatch.setattr("sparklog.driver.spark.preflight.SLOT_WAIT_S", 0.2)
    with pytest.raises(TooFewTaskSlotsError, match=rf"{SLOTS} task slots, of which 3 are free .*local\[7\]"):
        check_slots(slots, SLOTS - 3)


def test_stopped_cluster_is_told_of_at_once_and_starts_that_race_make_one_new(
    spark: SparkSession, cluster: sparklog.Cluster, tmp_path: Path
) -> None:
    """The format named the dead address, and queries failed after a minute, for a timeout."""
    stopped = "this application's cluster was stopped"
    read = spark.read.format("sparklog").option("subscribe", "events").load()
    stream = spark.readStream.format("sparklog").option("subscribe", "events").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    wait_for(lambda: query.lastProgress is not None, "the query runs")
    cluster.stop()
    with pytest.raises(StreamingQueryException, match=stopped):
        query.awaitTermination(30)
    with pytest.raises(AnalysisException, match=stopped):
        read.collect()
    with pytest.raises(AnalysisException, match=stopped) as refused:
        spark.read.format("sparklog").option("subscribe", "events").load()
    assert "Traceback" not in str(refused.value)
    with pytest.raises(AnalysisException, match=stopped):
        read.write.format("sparklog").option("topic", "events").mode("append").save()
    with ThreadPoolExecutor(2) as starters:
        second, third = starters.map(lambda _: sparklog.start(spark, racks=1), range(2))
    assert second is third is not cluster
    with second:
        pass
    with third:
        assert "value" in spark.read.format("sparklog").option("subscribe", "events").load().columns


@pytest.mark.long
def test_start_after_one_that_was_broken_off_twice_has_its_slots(
    spark: SparkSession, cluster: sparklog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second Ctrl-C breaks off the clearing up: brokers that nobody could stop kept the slots."""
    cluster.stop()  # by the test before this one
    slots = broker_slots(spark.sparkContext)

    def interrupt(*_: object, **__: object) -> None:
        assert slots.free_for_brokers() < SLOTS, "the broker's task runs"
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("sparklog.driver.cluster.TabThread.start", interrupt)
        broken.setattr("sparklog.driver.cluster.TabThread.stop", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sparklog.start(spark, racks=1)
    with sparklog.start(spark, racks=1):
        wait_for(lambda: slots.free_for_brokers() == SLOTS - 1, "only this one's broker runs")


def test_start_that_is_broken_off_between_controller_and_cluster_leaves_no_thread(
    spark: SparkSession, cluster: sparklog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could have stopped that controller: it belonged to no cluster yet."""
    cluster.stop()  # by a test before this one

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sparklog.driver.application.SparkCluster", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sparklog.start(spark, racks=1)
    assert "sparklog controller" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.long
def test_start_that_is_broken_off_before_its_jobs_are_submitted_ends_at_once(
    spark: SparkSession, cluster: sparklog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark cancels jobs that there are: brokers of one that came later waited 20 s for no controller."""
    cluster.stop()  # by a test before this one
    cancelled, cancel, take_slots = threading.Event(), Rack.cancel, Rack._take_slots

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    def cancel_and_tell(rack: Rack) -> None:
        cancel(rack)
        cancelled.set()

    def wait_and_take_slots(rack: Rack) -> bool:
        return cancelled.wait(30) and take_slots(rack)

    monkeypatch.setattr("sparklog.driver.cluster.DecommissionWatch.start", interrupt)
    monkeypatch.setattr(Rack, "cancel", cancel_and_tell)
    monkeypatch.setattr(Rack, "_take_slots", wait_and_take_slots)
    monkeypatch.setattr("sparklog.driver.cluster.LEAVE_TIMEOUT_S", 3_600.0)
    with pytest.raises(KeyboardInterrupt):
        sparklog.start(spark, racks=1)
    assert cancelled.is_set()
