"""Names of metrics, as Kafka's: a JMX ObjectName and one of its attributes.

Kafka has two kinds. Metrics of its servers have a name and a fixed set of attributes
(`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t` with Count, OneMinuteRate). Metrics of its
common library have no name; the attribute identifies them (`kafka.server:type=raft-metrics` with
current-epoch). Source: Kafka's KafkaMetricsGroup and JmxReporter.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

VALUE: Final = "Value"
COUNT: Final = "Count"
ONE_MINUTE_RATE: Final = "OneMinuteRate"
MEAN: Final = "Mean"
QUANTILES: Final[Mapping[float, str]] = {
    0.5: "50thPercentile",
    0.75: "75thPercentile",
    0.95: "95thPercentile",
    0.98: "98thPercentile",
    0.99: "99thPercentile",
    0.999: "999thPercentile",
    1.0: "Max",
}
"""The attributes of a histogram, by quantile."""

_QUOTED: Final = frozenset(',=:"*?\n')


class Kind(Enum):
    GAUGE = "gauge"
    """A current value: attribute Value, or the metric's own."""
    METER = "meter"
    """A sum since the process began: attribute Count, and OneMinuteRate per second where rates are
    computed."""
    HISTOGRAM = "histogram"
    """Attributes Count and Mean since the process began, and `QUANTILES` over the last minute or two."""


class MetricName(NamedTuple):
    """The name of one sample: the ObjectName and the attribute."""

    group: str
    type: str
    name: str | None
    tags: tuple[tuple[str, str], ...] = ()
    """Sorted by key."""
    attribute: str = VALUE

    def __str__(self) -> str:
        """Return the ObjectName, without the attribute.

        >>> str(MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (("topic", "t"),), COUNT))
        'kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t'
        """
        named = [("type", self.type), *([] if self.name is None else [("name", self.name)]), *self.tags]
        return f"{self.group}:" + ",".join(f"{key}={_quoted(value)}" for key, value in named)


class Metric(NamedTuple):
    """The common part of the names of one metric; `of` returns one of them."""

    group: str
    type: str
    name: str | None
    kind: Kind
    meaning: str
    """One sentence of explanation, exported with the metric."""
    tag_keys: tuple[str, ...] = ()
    """Sorted. A metric that has samples with and without tags lists the tags of those with."""
    attribute: str = VALUE
    """Attribute of a gauge, or of a meter without a name, which Kafka calls `...-total` or `...-count`."""

    def of(self, attribute: str | None = None, /, **tags: str) -> MetricName:
        """Return the name of a sample.

        >>> bytes_in = Metric("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", Kind.METER, "")
        >>> bytes_in.of().attribute
        'Count'
        """
        if attribute is None:
            attribute = self.attribute if self.kind is Kind.GAUGE or self.name is None else COUNT
        return MetricName(self.group, self.type, self.name, tuple(sorted(tags.items())), attribute)

    @property
    def rate_attribute(self) -> str:
        if self.name is not None:
            return ONE_MINUTE_RATE
        return self.attribute.removesuffix("-total").removesuffix("-count") + "-rate"

    def __str__(self) -> str:
        """Return the name in documents: the ObjectName without tags, and a nameless metric's attribute.

        >>> str(Metric("kafka.server", "raft-metrics", None, Kind.GAUGE, "", (), "current-epoch"))
        'kafka.server:type=raft-metrics current-epoch'
        """
        name = str(self.of())
        return name if self.name is not None else f"{name} {self.attribute}"


def metric(name: str, kind: Kind, meaning: str, tag_keys: tuple[str, ...] = ()) -> Metric:
    """Return the metric with a name as in documents (`Metric.__str__`): an ObjectName and maybe an attribute.

    >>> metric("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec", Kind.METER, "").type
    'BrokerTopicMetrics'
    >>> metric("kafka.server:type=raft-metrics current-epoch", Kind.GAUGE, "").attribute
    'current-epoch'
    """
    object_name, _, attribute = name.partition(" ")
    group, _, rest = object_name.partition(":type=")
    type_, named, own_name = rest.partition(",name=")
    return Metric(group, type_, own_name if named else None, kind, meaning, tag_keys, attribute or VALUE)


def gauge(name: str, meaning: str, tag_keys: tuple[str, ...] = ()) -> Metric:
    return metric(name, Kind.GAUGE, meaning, tag_keys)


def meter(name: str, meaning: str, tag_keys: tuple[str, ...] = ()) -> Metric:
    return metric(name, Kind.METER, meaning, tag_keys)


def histogram(name: str, meaning: str, tag_keys: tuple[str, ...] = ()) -> Metric:
    return metric(name, Kind.HISTOGRAM, meaning, tag_keys)


def _quoted(value: str) -> str:
    """Return a value as quoted in an ObjectName (`javax.management.ObjectName.quote`)."""
    if _QUOTED.isdisjoint(value):
        return value
    for special in ("\\", '"', "*", "?"):
        value = value.replace(special, "\\" + special)
    return '"' + value.replace("\n", "\\n") + '"'
