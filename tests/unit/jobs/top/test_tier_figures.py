"""The figures of the tier that the overview takes from the driver's page of metrics."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sparklog.driver.monitoring.exposition import for_prometheus
from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.jobs.top import tier_figures
from sparklog.jobs.top.tier_figures import MetricsPageError, TierWatch, TopicTier
from sparklog.node.metrics import remote_log
from sparklog.node.metrics.names import COUNT


class Page(HTTPServer):
    """A page of metrics, as the driver writes it."""

    text = ""

    def show(self, *brokers: dict[str, tuple[int, int, int]]) -> None:
        """Have brokers report by topic: bytes in the tier, bytes not copied, and reads so far."""
        self.text = for_prometheus(
            {
                str(number): ReceivedMetrics(
                    values={
                        name: float(value)
                        for topic, (remote_bytes, lag_bytes, reads) in topics.items()
                        for name, value in (
                            (remote_log.LOG_SIZE_BYTES.of(topic=topic), remote_bytes),
                            (remote_log.COPY_LAG_BYTES.of(topic=topic), lag_bytes),
                            (remote_log.FETCH_REQUESTS.of(topic=topic)._replace(attribute=COUNT), reads),
                        )
                    },
                    received_at_ms=0,
                )
                for number, topics in enumerate(brokers)
            },
            0,
        )


class Handler(BaseHTTPRequestHandler):
    server: Page

    def do_GET(self) -> None:
        body = self.server.text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[Page]:
    with Page(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url_of(page: Page) -> str:
    return f"http://127.0.0.1:{page.server_port}/log/metrics"


def test_figures_of_a_topic_are_summed_over_its_leaders(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker tells of the partitions that it leads; a rate takes two looks."""
    now_ms = [1_000]
    monkeypatch.setattr(tier_figures, "monotonic_ms", lambda: now_ms[0])
    watch = TierWatch(url_of(page))
    page.show({"t": (100, 7, 10), "u.v-w": (5, 0, 0)}, {"t": (50, 1, 30)})
    assert watch.look() == {"t": TopicTier(150, 8, None), "u.v-w": TopicTier(5, 0, None)}
    now_ms[0] = 3_000
    page.show({"t": (100, 7, 14)}, {"t": (50, 0, 32)})
    assert watch.look() == {"t": TopicTier(150, 7, 3.0)}


def test_page_that_does_not_answer_is_named(page: Page) -> None:
    """The address is that of the driver's UI, whose port may be another one."""
    url = url_of(page).replace("/log", ":x/log")
    with pytest.raises(MetricsPageError, match="nonnumeric port"):
        TierWatch(url).look()
    with pytest.raises(MetricsPageError, match="begins with http"):
        TierWatch("driver:4040/log/metrics")
