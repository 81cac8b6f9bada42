"""Offsets and sizes of the partitions that somebody looks at, from their leaders, as any client would ask
them.

Asking is done by a thread of its own, one page at a time: who renders a page waits a moment for the answer,
and without one shows what was answered last. Rates come from two answers. What nobody looks at is asked of
nobody.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass
from typing import Final, TypeAlias

from driver.ui.pages.topic import PartitionFigures
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.config import ClientConfig, parse_bootstrap_servers
from sparklog.client.log_dirs import describe_log_dirs
from sparklog.client.offsets import SpecialOffset, list_offsets
from sparklog.clocks import monotonic_ms
from sparklog.errors import KafkaError
from sparklog.types import BrokerId, Offset, TopicPartition

__all__ = ["PartitionSampler"]

ANSWER_WITHIN_S: Final = 0.4
"""How long a page waits."""
REQUEST_TIMEOUT_MS: Final = 2_000
MAX_REMEMBERED: Final = 32
"""Pages whose last answer is kept."""

logger = logging.getLogger(__name__)

_Page: TypeAlias = tuple[str, int]
"""A topic, and the first partition of the page."""


@dataclass(frozen=True, slots=True)
class _Sample:
    taken_ms: int
    figures: Mapping[int, PartitionFigures]


class PartitionSampler:
    """Asks leaders; `figures` belongs to one thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._client = ClusterClient(
            ClientConfig(
                bootstrap_servers=parse_bootstrap_servers(bootstrap_servers),
                client_id="sparklog-ui",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                api_timeout_ms=REQUEST_TIMEOUT_MS,
            )
        )
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sparklog tab offsets")
        self._asking: Future[None] | None = None
        self._samples: OrderedDict[_Page, _Sample] = OrderedDict()

    def figures(
        self, topic: str, leaders: Mapping[int, BrokerId]
    ) -> tuple[Mapping[int, PartitionFigures], int | None]:
        """Return what is known of these partitions of a topic, and how long ago it was answered.

        `leaders` are who leads each; a partition without a leader is asked of nobody.
        """
        page = topic, min(leaders, default=0)
        if self._asking is None or self._asking.done():
            self._asking = self._worker.submit(self._sample, page, dict(leaders))
        try:
            self._asking.result(ANSWER_WITHIN_S)
        except NotYetError:
            logger.debug("Leaders of %s have not answered yet", topic)
        except KafkaError as error:
            logger.debug("Leaders of %s do not answer: %s", topic, error)
        sample = self._samples.get(page)
        if sample is None:
            return {}, None
        return sample.figures, monotonic_ms() - sample.taken_ms

    def close(self) -> None:
        """Ask no more; returns at once."""
        self._worker.submit(self._client.close)
        self._worker.shutdown(wait=False)

    def _sample(self, page: _Page, leaders: Mapping[int, BrokerId]) -> None:
        topic = page[0]
        partitions = [TopicPartition(topic, number) for number in sorted(leaders)]
        before = self._samples.get(page)
        high_watermarks = list_offsets(self._client, dict.fromkeys(partitions, SpecialOffset.LATEST))
        taken_ms = monotonic_ms()
        starts = list_offsets(self._client, dict.fromkeys(partitions, SpecialOffset.EARLIEST))
        directories = describe_log_dirs(self._client, sorted(set(leaders.values())), partitions)
        figures = {}
        for each in partitions:
            directory = directories.get(leaders[each.partition])
            high_watermark = high_watermarks[each].offset
            figures[each.partition] = PartitionFigures(
                log_start_offset=starts[each].offset,
                high_watermark=high_watermark,
                size_bytes=None if directory is None else directory.sizes.get(each),
                records_in_per_s=_rate(before, each.partition, high_watermark, taken_ms),
            )
        self._samples[page] = _Sample(taken_ms, figures)
        self._samples.move_to_end(page)
        while len(self._samples) > MAX_REMEMBERED:
            self._samples.popitem(last=False)


def _rate(
    before: _Sample | None, partition: int, high_watermark: Offset | None, taken_ms: int
) -> float | None:
    if before is None or high_watermark is None or taken_ms <= before.taken_ms:
        return None
    known = before.figures.get(partition)
    if known is None or known.high_watermark is None:
        return None
    return max(0, high_watermark - known.high_watermark) * 1_000 / (taken_ms - before.taken_ms)
