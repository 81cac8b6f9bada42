"""The cluster's figures in Spark's metrics system: a file sink, Spark's servlets, the page for Prometheus."""

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import sparklog
from sparklog.driver.monitoring.spark_metrics import PROMETHEUS_PATH
from tests.cluster import wait_for
from tests.spark.sessions import REPOSITORY, spark_session
from tests.unit.docs.test_monitoring import ALERTS, BOARD, expressions

RECORDS = 300


@pytest.fixture(scope="module")
def csv_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the user's CSV sink writes."""
    return tmp_path_factory.mktemp("csv")


@pytest.fixture(scope="module")
def user_interface(csv_directory: Path) -> Iterator[str]:
    """The address of the UI of an application with a cluster, to which something was written."""
    sink = "spark.metrics.conf.driver.sink.csv."
    servlet = "spark.metrics.conf.driver.sink.prometheusServlet."
    with (
        spark_session(
            "local[4]",
            **{
                "spark.ui.enabled": "true",
                "spark.ui.port": "0",
                f"{servlet}class": "org.apache.spark.metrics.sink.PrometheusServlet",
                f"{servlet}path": "/metrics/prometheus",
                f"{sink}class": "org.apache.spark.metrics.sink.CsvSink",
                f"{sink}period": "1",
                f"{sink}unit": "seconds",
                f"{sink}directory": str(csv_directory),
            },
        ) as spark,
        sparklog.start(spark, racks=2) as cluster,
    ):
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for _ in range(RECORDS):
            producer.produce("written", b"x" * 100)
        assert producer.flush(20) == 0
        address = spark.sparkContext.uiWebUrl
        assert address is not None
        yield address


def page(address: str) -> str:
    """Return what is there now."""
    with urllib.request.urlopen(address, timeout=10) as response:
        text: str = response.read().decode()
    return text


def page_with(address: str, is_there: Callable[[str], bool]) -> str:
    """Return the page when it says what is looked for."""

    def look() -> str | None:
        text = page(address)
        return text if is_there(text) else None

    return wait_for(look, f"{address} to have it")


def messages(exposition: str) -> float:
    """Return how many records the brokers say that the topic got."""
    head = "kafka_server_brokertopicmetrics_messagesin_total{"
    lines = [line for line in exposition.splitlines() if line.startswith(head) and 'topic="written"' in line]
    return sum(float(line.split()[-1]) for line in lines)


def test_page_for_prometheus_has_every_broker_with_labels(user_interface: str) -> None:
    """By topic and by broker is how anybody asks."""
    head = "kafka_server_replicamanager_leadercount{"

    def leaders(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith(head)]

    active = 'kafka_controller_kafkacontroller_activebrokercount{broker="controller"} 2'
    # Brokers and controller tell their figures when it is their turn.
    text = page_with(
        user_interface + PROMETHEUS_PATH,
        lambda text: messages(text) == RECORDS and len(leaders(text)) == 2 and active in text.splitlines(),
    )
    assert [line.split()[0] for line in leaders(text)] == [f'{head}broker="{number}"}}' for number in (0, 1)]
    assert sum(float(line.split()[1]) for line in leaders(text)) == 1


def test_sinks_that_a_user_has_configured_get_the_figures(user_interface: str, csv_directory: Path) -> None:
    """Whatever collects an application's metrics already is to have these, without a word about Kafka."""
    page_with(user_interface + PROMETHEUS_PATH, lambda text: messages(text) == RECORDS)
    name = "kafka.server.BrokerTopicMetrics.MessagesInPerSec.topic.written.Count"

    def written() -> bool:
        files = csv_directory.glob(f"*.driver.sparklog.broker.*.{name}.csv")
        rows = [path.read_text().splitlines() for path in files]
        return sum(float(row[-1].split(",")[1]) for row in rows if len(row) > 1) == RECORDS

    wait_for(written, "the CSV sink to have what was written")


def test_sparks_own_servlets_have_the_figures(user_interface: str) -> None:
    """Who scrapes Spark's addresses already need not scrape another one."""
    flat = "sparklog_broker_0_kafka_server_ReplicaManager_PartitionCount_Value_Value"

    def is_in_the_servlet(text: str) -> bool:
        return any(flat in line and line.endswith(" 1.0") for line in text.splitlines())

    def is_in_the_json(text: str) -> bool:
        gauges = json.loads(text)["gauges"]
        names = [name for name in gauges if name.endswith("ReplicaManager.PartitionCount.Value")]
        return [gauges[name] for name in names if ".broker.1." in name] == [{"value": 1.0}]

    page_with(user_interface + "/metrics/prometheus", is_in_the_servlet)
    page_with(user_interface + "/metrics/json", is_in_the_json)


PROMETHEUS = shutil.which("prometheus")


@contextmanager
def prometheus(target: str, directory: Path) -> Iterator[str]:
    """A Prometheus with conf/prometheus.yml, which scrapes `target`; yields its address."""
    assert PROMETHEUS is not None
    configuration = (REPOSITORY / "conf" / "prometheus.yml").read_text()
    configuration = configuration.replace("localhost:4040", target).replace("interval: 5s", "interval: 1s")
    (directory / "prometheus.yml").write_text(configuration)
    shutil.copy(ALERTS, directory)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = {
        "config.file": directory / "prometheus.yml",
        "web.listen-address": address,
        "storage.tsdb.path": directory / "data",
    }
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [PROMETHEUS, *(f"--{name}={value}" for name, value in arguments.items())], stdout=log, stderr=log
        )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(20)


def found(server: str, query: str) -> list[Any]:
    """Return the series that answer a query; none while Prometheus is not up."""
    try:
        answer = json.loads(page(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
    except (ConnectionError, urllib.error.URLError):
        return []
    result: list[Any] = answer["data"]["result"]
    return result


def board_queries() -> Iterator[str]:
    """Yield what the board asks, of all brokers and topics, in shorter intervals than an operator would."""
    for query in expressions(json.loads(BOARD.read_text())):
        if ("(" in query or "{" in query) and not query.startswith("label_values"):
            yield re.sub(r"\[\d+m\]", "[10s]", query.replace("$broker", ".*").replace("$topic", ".*"))


@pytest.mark.long
@pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus on the PATH (Debian's package has it)")
def test_prometheus_answers_every_query_of_the_board_and_of_the_alarms(
    user_interface: str, tmp_path: Path
) -> None:
    """A board that is empty, and an alarm that can never ring, look like a cluster in the best of health."""
    thresholds = [
        re.sub(r"\[\d+m\]", "[10s]", re.sub(r" (>|<|!=) \S+$", "", rule))
        for rule in re.findall(r"expr: (.*)", ALERTS.read_text())
    ]
    queries = [*board_queries(), *thresholds]
    assert len(queries) > 40
    with prometheus(urllib.parse.urlsplit(user_interface).netloc, tmp_path) as server:
        unanswered = dict.fromkeys(queries)
        # Of errors there are none, which is what the board is to show.
        del unanswered[next(query for query in queries if 'error!="NONE"' in query)]

        def all_answered() -> bool:
            for query in list(unanswered):
                if found(server, query):
                    del unanswered[query]
            return not unanswered

        try:
            wait_for(all_answered, "answers to all queries", 40.0)
        except AssertionError:
            pytest.fail(f"nothing answers {list(unanswered)}")
        rules = json.loads(page(f"{server}/api/v1/rules"))["data"]["groups"][0]["rules"]
        assert all(rule["health"] in ("ok", "unknown") for rule in rules)
