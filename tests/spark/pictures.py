"""Takes the pictures of the Log tab in docs/: `python -m tests.spark.pictures`, with a real browser.

A cluster in local mode is written to and read from for a while; then a broker is killed, and what is seen
is taken: the overview on a light page, a topic on a dark one.
"""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from PIL import Image

import sparklog
from tests.spark.browser import Browser, browser
from tests.spark.processes import listening_processes
from tests.spark.sessions import spark_session

DOCS: Final = Path(__file__).parent.parent.parent / "docs"
SHOWN_S: Final = 90.0
WIDTH: Final = 1200


def main() -> None:
    """Take them."""
    with spark_session("local[8]", spark_ui_enabled="true", spark_ui_port="0") as spark:
        spark.sparkContext.setLogLevel("OFF")
        with sparklog.start(spark) as cluster, browser() as window:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            topics = [
                NewTopic("flights", 6, 3, config={"min.insync.replicas": "2", "retention.ms": "86400000"}),
                NewTopic("orders", 3, 3, config={"min.insync.replicas": "2"}),
                NewTopic("payments", 3, 3),
            ]
            for created in admin.create_topics(topics).values():
                created.result(30)
            stopping = threading.Event()
            writer = threading.Thread(target=write, args=(cluster.bootstrap_servers, stopping), daemon=True)
            writer.start()
            rows = spark.readStream.format("sparklog").option("subscribe", "flights").load()
            query = rows.writeStream.format("noop").queryName("delays by carrier").start()
            time.sleep(SHOWN_S)
            ui = f"http://127.0.0.1:{spark.sparkContext.uiWebUrl.rpartition(':')[2]}/log/"
            window.prefer("light")
            window.resize(WIDTH, 1000)
            window.open(ui)
            port = admin.list_topics(timeout=10).brokers[1].port
            for process in listening_processes({port}):
                os.kill(process, signal.SIGKILL)
            window.wait(
                "return document.getElementById('sl-partitions').innerText.includes('under-replicated')"
            )
            take(window, DOCS / "log-tab.png", "#sl-controller")
            window.prefer("dark")
            window.open(f"{ui}topic/?name=flights")
            window.wait("return document.querySelectorAll('#sparklog td').length > 0")
            time.sleep(5)  # the page is refreshed twice, so that it has rates
            take(window, DOCS / "log-tab-topic.png", "#sl-settings tr:nth-child(8)")
            stopping.set()
            query.stop()


def write(bootstrap_servers: str, stopping: threading.Event) -> None:
    """Write some records every tenth of a second."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
    number = 0
    while not stopping.wait(0.1):
        for _ in range(150):
            number += 1
            producer.produce("flights" if number % 3 else "orders", b"x" * 400, str(number))
        producer.poll(0)


def take(window: Browser, path: Path, until: str) -> None:
    """Take what is seen from the top of the page to the beginning of an element."""
    height = window.run(
        "return Math.ceil(document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY)", until
    )
    window.run("document.querySelectorAll('.scroll-btn-container, footer').forEach(e => e.remove())")
    window.resize(WIDTH, int(height))
    window.picture(path)
    with Image.open(path) as picture:
        # A page has few colours; a repository keeps every picture for ever.
        picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
