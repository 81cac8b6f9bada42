"""The metrics that a node has sent."""

from collections.abc import Mapping
from typing import NamedTuple

from sparklog.node.metrics.names import MetricName
from sparklog.protocol.types import TimestampMs


class ReceivedMetrics(NamedTuple):
    received_at_ms: TimestampMs
    """By the driver's clock, since 1970."""
    values: Mapping[MetricName, float]
