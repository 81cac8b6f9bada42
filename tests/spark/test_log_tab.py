"""The Log tab of a running application: what it shows, in a real browser too, and what it leaves alone."""

import contextlib
import http.server
import json
import os
import re
import signal
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from sparklog.driver.ui.asked_page import OVERVIEW, AskedPage
from sparklog.driver.ui.pages.html import UI_ROOT_MARK, Html
from sparklog.driver.ui.spark_tab import SparkTab
from sparklog.jobs.top import __main__ as top
from sparklog.spark_versions import PYSPARK
from tests.spark.browser import Browser, browser
from tests.spark.processes import (
    API_VERSIONS,
    GET,
    PY4J_CALL,
    PY4J_FORGET,
    answer_to,
    listening_of,
    listening_processes,
)
from tests.spark.sessions import REPOSITORY, spark_session

TIMEOUT_S: Final = 60.0
RECORDS: Final = 300
WIDE: Final = 110
"""Partitions, of which a page shows a hundred."""
EVIL: Final = "<img src=x onerror=alert(1)> & 'reads'"
EVIL_GROUP: Final = f"{EVIL}\n/?&+%"
"""Whatever a client calls its group."""
PROXY_PATH: Final = "/gateway/application-1"
SECRET: Final = "Xyzzy-of-ann"
"""Without any word that Spark hides by itself."""
SECRETS: Final = {
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
    "kafka.sasl.jaas.config": f'x.ScramLoginModule required username="ann" password="{SECRET}";',
    "kafka.sasl.oauthbearer.client.credentials.client.secret": SECRET,
    "kafka.ssl.key.password": SECRET,
    "kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    "kafka.ssl.keystore.password": SECRET,
    "kafka.ssl.truststore.password": SECRET,
}
NOT_YET: Final = HTTPStatus.SERVICE_UNAVAILABLE, None
ANSWERING: Final = {
    "broker": API_VERSIONS,
    "CONTROLLER": API_VERSIONS,
    "driver": API_VERSIONS,
    "UI": GET,
    "Py4J's callbacks": PY4J_FORGET,
}
"""Of the ports in docs/security.md, those at which a stranger is told something, and asked in which words."""


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark writes what its history server shows."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def open_before() -> set[int]:
    """Ports that this process and its JVM have open from the sessions of other modules."""
    gateway: Any = SparkContext._gateway
    own = psutil.Process()
    found = listening_of(own) if gateway is None else listening_of(own, psutil.Process(gateway.proc.pid))
    return {each.port for each in found}


@pytest.fixture(scope="module")
def spark(events: Path, open_before: set[int]) -> Iterator[SparkSession]:
    with spark_session(
        "local[6]",
        spark_ui_enabled="true",
        spark_ui_port="0",
        spark_ui_showConsoleProgress="true",
        # With each of them the stages' pages are brought up to date, else every 10 s.
        spark_executor_heartbeatInterval="1s",
        spark_plugins="",  # a JVM keeps the properties of the session that launched it
        spark_redaction_regex=documented_redaction(),
        spark_eventLog_enabled="true",
        spark_eventLog_dir=events.as_uri(),
        spark_eventLog_compress="false",
    ) as session:
        yield session


@pytest.fixture(scope="module")
def cluster(spark: SparkSession) -> Iterator[sparklog.Cluster]:
    """A cluster with a topic of 300 records and one of two pages of partitions."""
    with sparklog.start(spark) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topics = [NewTopic("flights", 3, 3, config={"min.insync.replicas": "2"}), NewTopic("wide", WIDE, 1)]
        for created in admin.create_topics(topics).values():
            created.result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce("flights", b"record", partition=number % 3)
        assert producer.flush(TIMEOUT_S) == 0
        yield cluster


def secret_options(cluster: sparklog.Cluster) -> dict[str, str]:
    """Return options with secrets that nobody asks for. By its own name the cluster would refuse them."""
    return {**SECRETS, "kafka.bootstrap.servers": cluster.bootstrap_servers.replace("127.0.0.1", "localhost")}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the query."""
    return tmp_path_factory.mktemp("checkpoint")


@pytest.fixture(scope="module")
def query(spark: SparkSession, cluster: sparklog.Cluster, checkpoint: Path) -> Iterator[StreamingQuery]:
    """A query that reads the topic, under a name with markup in it, and with secrets."""
    rows = spark.readStream.format("sparklog").options(**secret_options(cluster), subscribe="flights").load()
    writer = rows.writeStream.format("noop").queryName(EVIL).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="1 second").start()
    yield query
    query.stop()


@pytest.fixture(scope="module")
def coordinated(cluster: sparklog.Cluster) -> Iterator[Producer]:
    """A group that has committed in one partition of three, and the producer of a transaction that is open.

    Both under names with markup in them.
    """
    # It is not polled: the group has no members, so nobody waits for a rebalance.
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": EVIL_GROUP})
    consumer.commit(offsets=[TopicPartition("wide", 0, 2, metadata=EVIL)], asynchronous=False)
    consumer.close()
    settings = {"transactional.id": EVIL, "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce("wide", b"record", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    yield producer


@pytest.fixture(scope="module")
def window(cluster: sparklog.Cluster) -> Iterator[Browser]:
    with browser() as window:
        yield window


def documented_redaction() -> str:
    """Return the value of spark.redaction.regex that docs/security.md gives."""
    (line,) = re.findall(
        r"^    spark\.redaction\.regex +(\S+)$", (REPOSITORY / "docs/security.md").read_text(), re.M
    )
    return str(line)


def address(spark: SparkSession) -> str:
    """Return the UI's address, on loopback whatever it is said to be."""
    return f"http://127.0.0.1:{spark.sparkContext.uiWebUrl.rpartition(':')[2]}"


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        return str(response.read().decode())


def fetched_json(url: str) -> Any:
    """Return what there is to see as soon as there is something: `not yet` is an answer, too."""
    return until(lambda: (found := answer(url)) != NOT_YET and found)[1]


def answer(url: str) -> tuple[int, Any]:
    """Return the status, and the JSON if there is any."""
    try:
        return HTTPStatus.OK, json.loads(fetched(url))
    except HTTPError as error:
        return error.code, None
    except json.JSONDecodeError:  # while the tab is not attached, its addresses lead to Spark's first page
        return NOT_YET


def until(condition: Callable[[], Any]) -> Any:
    """Return what the condition gives as soon as that is true."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (result := condition()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)
    return result


def where_attached(spark: SparkSession) -> tuple[bool, bool]:
    """Return whether the UI has the tab in its bar, and as a page."""
    in_bar = 'href="/log/"' in fetched(f"{address(spark)}/executors/")
    return in_bar, 'id="sparklog"' in fetched(f"{address(spark)}/log/")


def overview(spark: SparkSession, key: str) -> Any:
    """Return the overview's JSON once something is in it."""
    return until(lambda: (found := fetched_json(f"{address(spark)}/log/json/")).get(key) and found)


def test_tab_that_python_leaves_alone_holds_no_page_up_and_says_so(spark: SparkSession) -> None:
    """Somebody looks when the driver's Python stands still: every page must come all the same, and say so."""
    tab = SparkTab.attach(spark.sparkContext, old_ms=300)
    try:
        assert "There are no figures yet" in fetched(f"{address(spark)}/log/")
        assert answer(f"{address(spark)}/log/json/") == NOT_YET
        tab.put(OVERVIEW, Html(f'<a href="{UI_ROOT_MARK}/log/">here</a>'), '{"a":1}')
        assert '<a href="/log/">here</a>' in fetched(f"{address(spark)}/log/")
        assert fetched_json(f"{address(spark)}/log/json/") == {"a": 1}
        until(lambda: "s old: the driver's Python" in fetched(f"{address(spark)}/log/"))
        began_s = time.monotonic()
        assert "There are no figures yet" in fetched(f"{address(spark)}/log/topic/?name=a&page=3")
        assert answer(f"{address(spark)}/log/topic/json/?name=a&page=3") == NOT_YET
        assert time.monotonic() - began_s < TIMEOUT_S / 2
        assert tab.next_asked(0.01) in (AskedPage("topic\na\n\n3"), None)
    finally:
        tab.detach()
    assert where_attached(spark) == (False, False)


def test_page_asked_for_the_first_time_is_waited_for_while_python_is_about_to_make_it(
    spark: SparkSession,
) -> None:
    """A script that is told of no partitions, because the driver was busy for a second, believes that."""

    def answer_late() -> None:
        tab = SparkTab.attach(spark.sparkContext, old_ms=int(TIMEOUT_S * 1000))
        attached.set()
        try:
            asked = until(lambda: tab.next_asked(TIMEOUT_S))
            assert tab.next_asked(1.5) is None  # longer than who has seen the page before would wait
            tab.put(asked, Html("<p>"), '{"name":"a"}')
            assert seen.result(TIMEOUT_S) == (HTTPStatus.OK, {"name": "a"})
        finally:
            tab.detach()

    attached = threading.Event()
    # As a cluster's: in a thread of its own, for each of which py4j remembers classes by their names.
    with ThreadPoolExecutor(1) as python, ThreadPoolExecutor(1) as script:
        late = python.submit(answer_late)
        assert attached.wait(TIMEOUT_S)
        seen = script.submit(answer, f"{address(spark)}/log/topic/json/?name=a&page=1")
        late.result()


def test_overview_shows_brokers_where_spark_runs_them(spark: SparkSession, cluster: sparklog.Cluster) -> None:
    """From a broker to its executor's page and to its stage is one click."""

    def settled() -> Any:
        status = overview(spark, "controller")
        voters = [each["is_voter"] for each in status["controller"]["voters"]]
        served = all(each["task"] and each["state"] == "in service" for each in status["brokers"])
        return status if voters == [True] * 3 and served else None

    # On a busy machine the first looks come before everything is there.
    status = until(settled)
    assert status["cluster_id"] == cluster.cluster_id
    assert [(each["node_id"], each["state"], each["rack"]) for each in status["brokers"]] == [
        (0, "in service", "rack-0"),
        (1, "in service", "rack-1"),
        (2, "in service", "rack-2"),
    ]
    assert [each["task"]["executor_id"] for each in status["brokers"]] == ["driver"] * 3
    assert "/executors/" in fetched(f"{address(spark)}/log/")


def test_terminal_shows_the_tabs_overview(
    spark: SparkSession, cluster: sparklog.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads the same observation, by the address that an operator knows."""
    overview(spark, "controller")
    assert top.main(["--once", address(spark)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"Cluster {cluster.cluster_id}  controller ")
    assert [line.split()[0] for line in lines if "127.0.0.1:" in line] == ["0", "1", "2"]


def test_brokers_are_jobs_with_names(spark: SparkSession, cluster: sparklog.Cluster) -> None:
    """An operator finds each broker as a job with a name, not as `collect at ...`."""
    application = f"{address(spark)}/api/v1/applications/{spark.sparkContext.applicationId}"
    jobs = fetched_json(f"{application}/jobs?status=running")
    assert {(job["name"], job["description"]) for job in jobs} == {
        (f"Kafka broker {each} (rack-{each})", f'sparklog rack-{each}: <a href="/log/">broker {each}</a>')
        for each in range(3)
    }


def test_ports_of_an_application_are_those_that_the_documents_list(
    spark: SparkSession, cluster: sparklog.Cluster, open_before: set[int]
) -> None:
    """Whoever reaches a port may ask there. Kafka's listeners and the UI tell him something, and one more."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    clients = {broker.port for broker in admin.list_topics(timeout=TIMEOUT_S).brokers.values()}
    brokers = listening_processes(clients)
    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # as the first query with `foreachBatch` does
    known = {
        int(cluster.bootstrap_servers.rpartition(":")[2]): "driver",
        int(context.uiWebUrl.rpartition(":")[2]): "UI",
        int(context.getConf().get("spark.driver.port")): "Spark's RPC",
        context._gateway.gateway_parameters.port: "Py4J",
        context._gateway._callback_server.port: "Py4J's callbacks",
        context._accumulatorServer.server_address[1]: "accumulators",
        **dict.fromkeys(clients, "broker"),
    }
    java = psutil.Process(context._gateway.proc.pid)
    workers = [each.pid for each in java.children(recursive=True)]

    def kind(port: int, process_id: int) -> str:
        if port in known:
            return known[port]
        if process_id in brokers:
            return "CONTROLLER"
        if process_id in workers:
            return "PySpark's daemon"
        return "block manager or barrier task" if process_id == java.pid else "unknown"

    found = listening_of(psutil.Process(), java, *java.children(recursive=True))
    found = [each for each in found if each.port in known or each.port not in open_before]
    kinds = {each.port: kind(each.port, each.process_id) for each in found}
    greetings = (API_VERSIONS, GET, PY4J_CALL, PY4J_FORGET)
    with ThreadPoolExecutor(len(greetings) * len(kinds)) as strangers:
        asked = [
            (name, strangers.submit(answer_to, port, words, TIMEOUT_S if words == ANSWERING.get(name) else 1))
            for port, name in kinds.items()
            for words in greetings
        ]
    assert {each.address for each in found} == {"127.0.0.1"}
    assert set(kinds.values()) == {
        *known.values(),
        "CONTROLLER",
        "PySpark's daemon",
        "block manager or barrier task",
    }
    assert {name for name, answer in asked if answer.result()} == set(ANSWERING)


def test_topic_shows_offsets_sizes_and_settings_as_its_leaders_say(
    spark: SparkSession, cluster: sparklog.Cluster
) -> None:
    """Whether records arrive is seen without another tool."""
    url = f"{address(spark)}/log/topic/json/?name=flights"

    def settled() -> Any:
        found = fetched_json(url)
        # A page comes before the first leader has answered, and a broker's size before its last record.
        return (
            found
            if all(each["high_watermark"] and each["size_bytes"] for each in found["partitions"])
            else None
        )

    topic = until(settled)
    assert [each["high_watermark"] for each in topic["partitions"]] == [RECORDS // 3] * 3
    assert [each["log_start_offset"] for each in topic["partitions"]] == [0] * 3
    assert [len(each["isr"]) for each in topic["partitions"]] == [3] * 3
    assert topic["settings"]["min.insync.replicas"] == "2"
    # Each page under whatever number somebody types.
    for page in ("1", "x"):
        topics = f"{address(spark)}/log/topics/json/?page={page}"
        until(lambda topics=topics: [each["name"] for each in fetched_json(topics)] == ["flights", "wide"])
    last = fetched_json(f"{address(spark)}/log/topic/json/?name=wide&page=2")
    assert [each["partition"] for each in last["partitions"]] == list(range(100, WIDE))


def test_group_shows_its_lag_whatever_its_name(spark: SparkSession, coordinated: Producer) -> None:
    """Spark's UI rewrites what stands in an address: quotes, line ends and markup would lead to no group."""
    log = f"{address(spark)}/log"

    def known(page: str, entries: str) -> Any:
        """Return what is listed once all leaders have said where their partitions end."""
        found = fetched_json(f"{log}/{page}").get(entries)
        return found and all(each["lag"] is not None for each in found) and found

    (listed,) = until(lambda: known("groups/json/", "groups"))
    assert (listed["group_id"], listed["state"], listed["members"]) == (EVIL_GROUP, "Empty", 0)
    assert (listed["partitions"], listed["lag"]) == (1, 3)
    query = urlencode({"name": EVIL_GROUP})
    (partition,) = until(lambda: known(f"group/json/?{query}", "partitions"))
    assert (partition["committed_offset"], partition["high_watermark"], partition["lag"]) == (2, 5, 3)
    assert partition["metadata"].rstrip("\0") == EVIL  # confluent-kafka writes C's last byte, too
    until(lambda: fetched_json(f"{log}/group/json/?name=nobody") == {})


def test_open_transaction_is_found_from_its_coordinator_and_from_its_partition(
    spark: SparkSession, coordinated: Producer
) -> None:
    """A reader of committed records stands still at offset 0 of a partition: for whom does it wait?"""
    log = f"{address(spark)}/log"
    (found,) = until(lambda: fetched_json(f"{log}/transactions/json/").get("transactions"))
    assert (found["transactional_id"], found["state"], found["timeout_ms"]) == (EVIL, "Ongoing", 600_000)
    assert found["partitions"] == [{"topic": "wide", "partition": 0}]
    (producer,) = until(lambda: fetched_json(f"{log}/producers/json/?name=wide&partition=0").get("producers"))
    assert (producer["transaction_start_offset"], producer["is_hanging"]) == (0, False)
    assert (producer["transactional_id"], producer["producer_id"]) == (EVIL, found["producer_id"])


def test_progress_bar_and_status_see_what_they_should(spark: SparkSession, cluster: sparklog.Cluster) -> None:
    """The bar shows three stages at most: the brokers' would hide the user's own for ever."""
    context: Any = spark.sparkContext._jsc
    until(lambda: context.sc().statusStore().activeStages().isEmpty())
    until(lambda: len(spark.sparkContext.statusTracker().getActiveStageIds()) == 3)
    stages = f"{address(spark)}/api/v1/applications/{spark.sparkContext.applicationId}/stages?status=active"
    until(lambda: len(fetched_json(stages)) == 3)


def test_broker_s_stage_shows_figures(spark: SparkSession, cluster: sparklog.Cluster) -> None:
    """Whoever comes by Spark's own pages finds the broker, not a task that never ends."""
    stage = until(lambda: overview(spark, "brokers")["brokers"][0]["task"])["stage_id"]
    api = f"{address(spark)}/api/v1/applications/{spark.sparkContext.applicationId}"

    def figures() -> dict[str, str]:
        updates = fetched_json(f"{api}/stages/{stage}/0?details=false")["accumulatorUpdates"]
        return {update["name"]: update["value"] for update in updates}

    until(lambda: figures().get("broker 0: state") == "in service")
    until(lambda: int(figures()["broker 0: partitions led"]) > 0)


def test_streaming_query_of_any_session_is_shown_with_its_lag(
    spark: SparkSession, query: StreamingQuery
) -> None:
    """Lag is why somebody looks; the name is the query's, whatever is in it."""

    def sources() -> list[tuple[str, int | None]]:
        (shown,) = overview(spark, "queries")["queries"]
        assert (shown["name"], shown["failure"]) == (EVIL, None)
        return [(each["description"], each["lag"]) for each in shown["sources"]]

    until(lambda: sources() == [("flights", 0)])


def test_pages_fit_the_window_and_keep_the_policy(
    spark: SparkSession, query: StreamingQuery, coordinated: Producer, window: Browser
) -> None:
    """A page that scrolls sideways, or whose script is blocked, is found out before a user does."""
    overview(spark, "queries")
    of_coordinators = (
        "groups/",
        f"group/?{urlencode({'name': EVIL_GROUP})}",
        "transactions/",
        "producers/?name=wide&partition=0",
    )
    for page in ("", "topics/", "topic/?name=flights", "topic/?name=wide&page=2", *of_coordinators):
        window.open(f"{address(spark)}/log/{page}")
        window.wait("return document.querySelectorAll('#sparklog table').length > 0")
        for width in (1280, 800):
            window.resize(width, 900)
            # Spark's own bar of tabs is wider than 800 pixels, with this tab or without it.
            content, visible = window.run(
                "const content = document.getElementById('sparklog');"
                "const right = content.getBoundingClientRect().left + content.scrollWidth;"
                "return [right, document.documentElement.clientWidth]"
            )
            assert content <= visible, (page, width)
        if page in of_coordinators:
            window.wait(f"return document.getElementById('sparklog').innerText.includes({json.dumps(EVIL)})")
            assert window.run("return document.querySelectorAll('img[src=x]').length") == 0
    assert window.console() == []


def test_charts_and_markup_in_names_are_what_they_should_be(
    spark: SparkSession, query: StreamingQuery, window: Browser
) -> None:
    """A name is text: an image in it would be loaded, and its handler run."""
    overview(spark, "queries")
    window.open(f"{address(spark)}/log/")
    window.wait("return document.querySelectorAll('#sl-charts svg polyline').length > 0")
    assert window.run("return document.querySelectorAll('#sparklog img, #sparklog script').length") == 0
    window.wait(f"return document.getElementById('sl-queries').innerText.includes({json.dumps(EVIL)})")


def test_page_is_refreshed_by_itself(spark: SparkSession, cluster: sparklog.Cluster, window: Browser) -> None:
    """Somebody who watches a restart must not press a key each second."""
    overview(spark, "brokers")
    window.open(f"{address(spark)}/log/")
    window.run("window.first = document.getElementById('sparklog')")
    window.wait("return document.getElementById('sparklog') !== window.first")
    assert window.console() == []


def test_page_is_dark_and_light_as_spark_s_own(
    spark: SparkSession, cluster: sparklog.Cluster, window: Browser
) -> None:
    """Text that can't be read against its background is found out by its contrast.

    Before 4.2 Spark's pages are light only.
    """
    overview(spark, "brokers")
    seen = {}
    for theme in ("dark", "light"):
        window.prefer(theme)
        window.open(f"{address(spark)}/log/")
        window.wait("return document.querySelector('#sl-charts svg text')")
        seen[theme] = window.run(
            "const of = (e, what) => getComputedStyle(e)[what].match(/[0-9.]+/g).slice(0, 3).map(Number);"
            "const sum = (c) => c[0] + c[1] + c[2];"
            "const cell = document.querySelector('#sl-brokers td:nth-child(3)');"
            "const text = document.querySelector('#sl-charts svg text');"
            "const body = sum(of(document.body, 'backgroundColor'));"
            "return [body, sum(of(cell, 'color')), sum(of(text, 'fill'))]"
        )
    for theme, (background, cell, text) in seen.items():
        assert abs(background - cell) > 300, theme
        assert abs(background - text) > 150, theme
    assert (seen["dark"][0] < seen["light"][0]) == (PYSPARK >= (4, 2))


def test_links_lead_through_a_proxy_that_has_the_ui_under_a_path(
    spark: SparkSession, cluster: sparklog.Cluster, window: Browser
) -> None:
    """YARN, Knox and notebooks' servers have it so; a link without the path leads somewhere else."""
    overview(spark, "brokers")
    with proxy(address(spark)) as proxied:
        window.open(f"{proxied}{PROXY_PATH}/log/")
        paths = window.run(
            "return [...document.querySelectorAll('#sparklog a')].map(a => new URL(a.href).pathname)"
        )
        assert {path for path in paths if not path.startswith(f"{PROXY_PATH}/")} == set()
        window.run(
            "[...document.querySelectorAll('#sl-topics a')].find(a => a.innerText == 'flights').click()"
        )
        window.wait(
            "return location.pathname.endsWith('/log/topic/') && document.getElementById('sl-settings')"
        )
        assert window.run("return location.pathname") == f"{PROXY_PATH}/log/topic/"


def test_secret_of_the_application_is_in_no_page_property_or_command_line(
    spark: SparkSession, cluster: sparklog.Cluster
) -> None:
    """Whoever reads it could register as a broker; pages and /proc are read by many."""
    secret: str = cluster._secret._value  # type: ignore[attr-defined]
    application = f"/api/v1/applications/{spark.sparkContext.applicationId}"
    pages = ("/environment/", "/executors/", "/jobs/", "/stages/", "/log/", f"{application}/environment")
    told = [fetched(address(spark) + page) for page in (*pages, f"{application}/stages?details=true")]
    told += [f"{name}={value}" for name, value in spark.sparkContext.getConf().getAll()]
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                told.append((process / name).read_bytes().decode(errors="replace"))
    assert len(secret) == 64
    assert not [text[:200] for text in told if secret in text]


def test_secrets_of_options_are_shown_nowhere(
    spark: SparkSession,
    cluster: sparklog.Cluster,
    query: StreamingQuery,
    checkpoint: Path,
    events: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Plans, the UI and its API, progress, errors, checkpoints, the event log, and files that Spark makes."""
    given = {**secret_options(cluster), "subscribe": "flights"}
    text = ", ".join(f"`{name}` '{value}'" for name, value in given.items())
    spark.sql(f"CREATE TEMPORARY VIEW given USING sparklog OPTIONS ({text})")
    spark.table("given").explain(mode="extended")
    wrong = {**SECRETS, "kafka.security.protocol": "SASL_PLAINTEXT", "subscribe": "flights"}
    wrong["kafka.sasl.jaas.config"] = wrong["kafka.sasl.jaas.config"].removesuffix(";")
    with pytest.raises(Exception, match="it does not end with a semicolon") as refused:
        spark.read.format("sparklog").options(**wrong).load()
    until(lambda: query.lastProgress)
    query.explain(extended=True)
    told = {
        "error": "".join(traceback.format_exception(refused.value)),
        "plans and logs": "".join(capsys.readouterr()),
        "progress": json.dumps([json.loads(each.json) for each in query.recentProgress]),
    }
    api = f"/api/v1/applications/{spark.sparkContext.applicationId}"
    plans = f"{address(spark)}{api}/sql?details=false&planDescription=true&length=1000"
    told["SQL"] = until(lambda: "CreateTempViewUsing" in (found := fetched(plans)) and found)
    for path in ("/environment/", "/StreamingQuery/", "/log/", f"{api}/stages?details=true"):
        told[path] = fetched(address(spark) + path)
    temporary = Path(str(spark.sparkContext._temp_dir)).parent
    for file in (file for directory in (events, checkpoint, temporary) for file in directory.rglob("*")):
        with contextlib.suppress(OSError):  # directories, and what is gone meanwhile
            told[str(file)] = file.read_text(errors="replace")
    assert any("SparkListenerSQLExecutionStart" in each for each in told.values())
    assert [where for where, what in told.items() if SECRET in what] == []


def test_killed_broker_is_told_with_what_followed_and_why(
    spark: SparkSession, cluster: sparklog.Cluster
) -> None:
    """After a bad night the list says what came first, and for which reason."""
    listener = overview(spark, "brokers")["brokers"][2]["listener"]
    (process,) = listening_processes({int(listener.rpartition(":")[2])})
    os.kill(process, signal.SIGKILL)

    def told() -> dict[str, str]:
        events = fetched_json(f"{address(spark)}/log/json/")["events"]
        return {event["kind"]: event["reason"] for event in events}  # of each kind the first

    until(lambda: {"fenced", "election", "ISR shrinks", "restarted", "unfenced"} <= told().keys())
    assert told()["fenced"] == "its process has ended"
    assert told()["election"].endswith("broker 2 is fenced, its process has ended")
    assert told()["restarted"]
    until(lambda: fetched_json(f"{address(spark)}/log/json/")["brokers"][2]["task"])
    assert fetched_json(f"{address(spark)}/log/json/")["brokers"][2]["restarts"] == 1


def test_tab_goes_with_the_cluster(spark: SparkSession, cluster: sparklog.Cluster) -> None:
    """The last test of the module: a notebook goes on without the cluster, and without dead links."""
    assert where_attached(spark) == (True, True)
    cluster.stop()
    # A page that is being made when the cluster stops is waited for no longer than a moment.
    until(lambda: where_attached(spark) == (False, False))


@contextlib.contextmanager
def proxy(target: str) -> Iterator[str]:
    """Yield the address of a server that has `target` below a path, and tells it so as Knox does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(PROXY_PATH):
                self.send_error(404)
                return
            request = urllib.request.Request(target + self.path.removeprefix(PROXY_PATH))
            request.add_header("X-Forwarded-Context", PROXY_PATH)
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                body = response.read()
                self.send_response(response.status)
                for name in ("Content-Type", "Content-Security-Policy"):
                    if (value := response.headers.get(name)) is not None:
                        self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
