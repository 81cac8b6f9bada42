"""Run the demonstration; exit status 0 only if all that was read equals the source."""

import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.jobs.demo import flights
from sparklog.jobs.demo.observers import AcknowledgedObserver, Observed, ReadingAlong

TOPIC = "flights"
PARTITIONS = 6
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dio.netty.jfr.enabled=false"
WRITE_TASKS = 12
"""More than there are slots, so that the write takes a while and has a middle."""
ROWS_AT_ONCE = 2_000
BATCH_BYTES = 65_536
"""Small batches, so that a pause of acknowledgements is the cluster's and not the writer's."""
KILL_AT_FRACTION = 0.3
PICTURE = Path("build/demo.png")
CATCH_UP_TIMEOUT_S = 30.0


class Story:
    """Prints the events, with the seconds since the start."""

    def __init__(self) -> None:
        self.started_s = time.monotonic()
        self.failures: list[str] = []

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started_s:5.1f} s] {text}", flush=True)

    def expect(self, what: str, found: object, expected: object) -> None:
        """Print whether two results agree, and note a difference."""
        if found == expected:
            self.say(f"  agrees: {what}")
        else:
            self.failures.append(what)
            self.say(f"  DIFFERS: {what}: found {found}, expected {expected}")


def spark_session() -> SparkSession:
    """Return a session whose three executors have room for one broker and one ordinary task each."""
    discovery_script = str(Path("conf/discover-broker.sh").absolute())
    builder = SparkSession.builder.master("local-cluster[3,2,1024]").appName("sparklog demo")
    for key, value in {
        "spark.executor.resource.broker.amount": "1",
        "spark.executor.resource.broker.discoveryScript": discovery_script,
        "spark.worker.resource.broker.amount": "1",
        "spark.worker.resource.broker.discoveryScript": discovery_script,
        # Four JVMs that live for a minute on few cores: the costs of the second compiler are never recovered.
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "3",
        # Data cached in memory is read three times: compressing it costs more than it saves.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def create_topic(bootstrap_servers: str) -> None:
    """Create the topic with Kafka's own admin client."""
    # The flights are of 2013: seven days, the default, would let them go while they are read.
    config = {"min.insync.replicas": "2", "retention.ms": "-1"}
    topic = NewTopic(TOPIC, PARTITIONS, 3, config=config)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([topic])[TOPIC].result(30)


def kill_leader(bootstrap_servers: str, partition: int) -> str:
    """SIGKILL the process that leads `partition`; return its description."""
    metadata = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(TOPIC, timeout=10)
    leader = metadata.brokers[metadata.topics[TOPIC].partitions[partition].leader]
    (process,) = (
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == leader.port
    )
    os.kill(process, signal.SIGKILL)
    return f"broker {leader.id}, leader of {TOPIC}-{partition}"


class Saboteur:
    """Kills a leader in the middle of the write, and reports the progress of the write."""

    def __init__(self, story: Story, acknowledged: AcknowledgedObserver, consumer: ReadingAlong) -> None:
        self.killed: str | None = None
        self.killed_s = 0.0
        self._story = story
        self._acknowledged = acknowledged
        self._consumer = consumer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="saboteur", daemon=True)

    def start(self, bootstrap_servers: str, kill_at_records: float) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._kill_at_records = kill_at_records
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        said, said_s = 0, 0.0
        while not self._over.wait(0.01):
            if self.killed is None and self._acknowledged.records >= self._kill_at_records:
                self.killed_s = time.monotonic() - self._acknowledged.started_s
                self.killed = kill_leader(self._bootstrap_servers, 0)
                self._story.say(f"  SIGKILL to {self.killed}, at {self._acknowledged.records:,} records")
            if self._acknowledged.records > said and time.monotonic() - said_s > 1:
                said, said_s = self._acknowledged.records, time.monotonic()
                self._story.say(
                    f"  acknowledged {self._acknowledged.records:,}, consumed {self._consumer.records:,}"
                )


@dataclass(frozen=True, slots=True)
class Source:
    """The written records, and the expected results of reading them."""

    records: DataFrame
    carriers: dict[str, flights.Carrier]
    month: flights.Totals

    @property
    def totals(self) -> flights.Totals:
        return flights.total(self.carriers)


def prepare(spark: SparkSession) -> Source:
    """Load the flights into the executors' memory, in the form of records."""
    # Unordered, in slices: a shuffle would cost more than all later steps.
    records = flights.flight_records(spark).coalesce(WRITE_TASKS).persist()
    return Source(
        records.select("key", "value", "timestamp"),
        flights.carriers(records),
        flights.totals(flights.in_month(records)),
    )


def write_with_kill(story: Story, source: Source, bootstrap_servers: str) -> Observed:
    """Write `source` while a consumer reads along, killing a leader on the way; return the observations."""
    expected = source.totals
    story.say(f"writing {expected.records:,} flights to {TOPIC}, {PARTITIONS} partitions, keyed by aircraft")
    story.say("  exactly once: the consumer that reads along gets them all when the batch commits")
    observed = (bootstrap_servers, TOPIC, PARTITIONS, time.monotonic())
    with (
        AcknowledgedObserver(*observed) as acknowledged,
        ReadingAlong(*observed) as consumer,
    ):
        saboteur = Saboteur(story, acknowledged, consumer)
        saboteur.start(bootstrap_servers, KILL_AT_FRACTION * expected.records)
        try:
            write = source.records.write.format("sparklog").option("topic", TOPIC)
            write.option("kafka.batch.size", BATCH_BYTES).mode("append").save()
        finally:
            saboteur.stop()
        seconds = time.monotonic() - acknowledged.started_s
        deadline_s = time.monotonic() + CATCH_UP_TIMEOUT_S
        while consumer.records < expected.records and time.monotonic() < deadline_s:
            time.sleep(0.05)
    story.expect("a leader was killed in the middle of the write", saboteur.killed is not None, True)
    story.expect("count and checksum of the consumer that read along", consumer.totals, expected)
    story.say(
        f"wrote {expected.records:,} records in {seconds:.1f} s; "
        f"longest pause of a partition's acknowledgements {acknowledged.longest_pause_s(consumer.ends):.2f} s"
    )
    return Observed(acknowledged.timeline, consumer.timeline, saboteur.killed_s, saboteur.killed or "nobody")


def draw_picture(observed: Observed) -> None:
    from sparklog.jobs.demo.picture import draw  # not at the top: matplotlib takes a second to load

    PICTURE.parent.mkdir(exist_ok=True)
    draw(PICTURE, observed)


def read_back(story: Story, spark: SparkSession, source: Source) -> None:
    topic = spark.read.format("sparklog").option("subscribe", TOPIC)
    story.say("reading the topic back as a DataFrame")
    carriers = flights.carriers(flights.parsed(topic.load()))
    story.expect("count and checksum of the DataFrame", flights.total(carriers), source.totals)
    story.expect("delays by carrier", carriers, source.carriers)
    latest, delays = max(carriers.items(), key=lambda item: item[1].mean_delay_minutes)
    story.say(
        f"  the latest carrier was {latest}: {delays.mean_delay_minutes:.1f} minutes on average "
        f"over {delays.totals.records:,} flights"
    )
    story.say(f"rewinding to {flights.MONTH_START} and reprocessing one month")
    rewound = topic.option("startingTimestamp", str(flights.MONTH_START_MS)).load()
    story.expect(
        "count and checksum of July",
        flights.totals(flights.in_month(rewound)),
        source.month,
    )


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    story = Story()
    story.say("starting Spark: three executors, then a broker in each")
    with ThreadPoolExecutor(1, thread_name_prefix="sparklog demo") as executor:
        # Most of a start is done by one thread of one process after the other; there is a core left for this.
        executor.submit(flights.table)
        spark = spark_session()
        prepared: Future[Source] = executor.submit(prepare, spark)
        with sparklog.start(spark) as cluster:
            story.say(
                f"bootstrap.servers={cluster.bootstrap_servers}  Spark UI {spark.sparkContext.uiWebUrl}"
            )
            create_topic(cluster.bootstrap_servers)
            source = prepared.result()
            observed = write_with_kill(story, source, cluster.bootstrap_servers)
            drawn = executor.submit(draw_picture, observed)
            read_back(story, spark, source)
            drawn.result()
        spark.stop()
    story.say(f"picture: {PICTURE}")
    if story.failures:
        story.say(f"FAILED: {', '.join(story.failures)}")
        return 1
    story.say("everything agreed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
