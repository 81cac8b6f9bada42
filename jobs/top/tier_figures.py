"""Bytes and reads of the tier, of which no request of Kafka's tells, from the driver's page of metrics.

The page is that for Prometheus (`http://DRIVER:4040/log/metrics`), with the figures of all brokers. Reads
a second are the differences of two looks, so the first one has none.
"""

import re
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Final, NamedTuple

from sparklog.driver.monitoring.exposition import family_name
from sparklog.node.clocks import monotonic_ms
from sparklog.node.metrics import remote_log

TIMEOUT_S: Final = 3.0
MAX_BYTES: Final = 64 << 20
"""Some 500,000 lines."""
SCHEMES: Final = ("http://", "https://")
_REMOTE_BYTES: Final = family_name(remote_log.LOG_SIZE_BYTES)
_COPY_LAG_BYTES: Final = family_name(remote_log.COPY_LAG_BYTES)
_READS: Final = family_name(remote_log.FETCH_REQUESTS)
_NAMES: Final = (_REMOTE_BYTES, _COPY_LAG_BYTES, _READS)
_LINE: Final = re.compile(rf'({"|".join(_NAMES)})\{{(?:[^}}]*,)?topic="([^"]+)"[^}}]*\}} (\S+)')


class MetricsPageError(Exception):
    """The page cannot be read."""


class TopicTier(NamedTuple):
    """A topic's figures; None for those that are not known."""

    remote_bytes: int | None
    copy_lag_bytes: int | None
    reads_per_s: float | None


@dataclass(slots=True)
class _Look:
    taken_ms: int
    sums: dict[str, Counter[str]] = field(default_factory=dict)
    """By metric and topic, over brokers."""


class TierWatch:
    """Watches the page of one cluster; belongs to one thread."""

    def __init__(self, url: str) -> None:
        """Watch the page at `url`.

        Raises:
            MetricsPageError: that is no address of a page.
        """
        if not url.startswith(SCHEMES):
            raise MetricsPageError(f"{url}: the address of the metrics begins with {' or '.join(SCHEMES)}")
        self._url = url
        self._before: _Look | None = None

    def look(self) -> Mapping[str, TopicTier]:
        """Return the figures of each topic that has some.

        Raises:
            MetricsPageError.
        """
        look = _Look(monotonic_ms())
        for name, topic, value in _samples(self._page()):
            look.sums.setdefault(name, Counter())[topic] += value
        topics = {topic for sums in look.sums.values() for topic in sums}
        found = {topic: self._figures(topic, look) for topic in topics}
        self._before = look
        return found

    def _figures(self, topic: str, look: _Look) -> TopicTier:
        def now(name: str) -> int | None:
            return look.sums.get(name, Counter[str]()).get(topic)

        reads, before = now(_READS), self._before
        rate = None
        if reads is not None and before is not None and look.taken_ms > before.taken_ms:
            # A counter that went back is of brokers that have started again.
            former = before.sums.get(_READS, Counter[str]())[topic]
            more = reads - former if reads >= former else reads
            rate = more * 1_000 / (look.taken_ms - before.taken_ms)
        return TopicTier(now(_REMOTE_BYTES), now(_COPY_LAG_BYTES), rate)

    def _page(self) -> str:
        try:
            with urllib.request.urlopen(self._url, timeout=TIMEOUT_S) as answer:
                data: bytes = answer.read(MAX_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            raise MetricsPageError(f"{self._url}: {error}") from error
        return data.decode(errors="replace")


def _samples(page: str) -> Iterator[tuple[str, str, int]]:
    for line in page.splitlines():
        if (found := _LINE.match(line)) is not None:
            name, topic, value = found.groups()
            try:
                yield name, topic, int(float(value))
            except (ValueError, OverflowError):  # NaN, of a broker that did not say
                continue
