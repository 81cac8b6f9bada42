"""Metrics of requests and connections. Source: Kafka's RequestMetrics, SocketServer and Selector."""

from typing import Final

from sparklog.node.metrics.names import Kind, Metric, metric

_REQUEST: Final = ("request",)
_LISTENER: Final = ("listener",)


def _requests(name: str, kind: Kind, meaning: str, tags: tuple[str, ...] = _REQUEST) -> Metric:
    return Metric("kafka.network", "RequestMetrics", name, kind, meaning, tags)


REQUESTS: Final = _requests(
    "RequestsPerSec", Kind.METER, "Requests that were answered, by API and version.", ("request", "version")
)
ERRORS: Final = _requests(
    "ErrorsPerSec",
    Kind.METER,
    "Error codes in answers, those of single partitions included, by API; NONE counts successes.",
    ("error", "request"),
)
TOTAL_TIME: Final = _requests(
    "TotalTimeMs", Kind.HISTOGRAM, "From when a request was received whole until its answer was made."
)
LOCAL_TIME: Final = _requests(
    "LocalTimeMs", Kind.HISTOGRAM, "The part of TotalTimeMs in which the broker's loop worked."
)
REMOTE_TIME: Final = _requests(
    "RemoteTimeMs",
    Kind.HISTOGRAM,
    "The part of TotalTimeMs spent waiting: for followers, for records, for disks and other requests.",
)
THROTTLE_TIME: Final = _requests("ThrottleTimeMs", Kind.HISTOGRAM, "The throttle time of answers.")
RESPONSE_QUEUE_TIME: Final = _requests(
    "ResponseQueueTimeMs",
    Kind.HISTOGRAM,
    "How long an answer waited for those of earlier requests of its connection.",
)
REQUEST_BYTES: Final = _requests("RequestBytes", Kind.HISTOGRAM, "Sizes of requests.")

CONNECTION_COUNT: Final = Metric(
    "kafka.server",
    "socket-server-metrics",
    None,
    Kind.GAUGE,
    "Open connections.",
    _LISTENER,
    "connection-count",
)
CONNECTION_CREATIONS: Final = Metric(
    "kafka.server",
    "socket-server-metrics",
    None,
    Kind.METER,
    "Connections accepted since the broker started.",
    _LISTENER,
    "connection-creation-total",
)
CONNECTION_CLOSES: Final = Metric(
    "kafka.server",
    "socket-server-metrics",
    None,
    Kind.METER,
    "Connections closed since the broker started.",
    _LISTENER,
    "connection-close-total",
)
EXPIRED_CONNECTIONS: Final = Metric(
    "kafka.server",
    "socket-server-metrics",
    None,
    Kind.METER,
    "Connections closed because they were idle for connections.max.idle.ms.",
    _LISTENER,
    "expired-connections-killed-count",
)
SUCCESSFUL_AUTHENTICATIONS: Final = Metric(
    "kafka.server",
    "socket-server-metrics",
    None,
    Kind.METER,
    "TLS handshakes that were completed.",
    _LISTENER,
    "successful-authentication-total",
)
FAILED_AUTHENTICATIONS: Final = Metric(
    "kafka.server",
    "socket-server-metrics",
    None,
    Kind.METER,
    "TLS handshakes that failed, were given up, or took too long.",
    _LISTENER,
    "failed-authentication-total",
)
REFUSED_CONNECTIONS: Final = metric(
    "sparklog:type=Listener,name=RefusedConnectionsPerSec",
    Kind.METER,
    "Connections closed at once: max.connections, max.connections.per.ip or the process's descriptors.",
    _LISTENER,
)
