"""Metrics of requests and connections. Source: Kafka's RequestMetrics, SocketServer and Selector."""

from typing import Final

from sparklog.node.metrics.names import Kind, Metric, gauge, meter

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

CONNECTION_COUNT: Final = gauge(
    "kafka.server:type=socket-server-metrics connection-count", "Open connections.", _LISTENER
)
CONNECTION_CREATIONS: Final = meter(
    "kafka.server:type=socket-server-metrics connection-creation-total",
    "Connections accepted since the broker started.",
    _LISTENER,
)
CONNECTION_CLOSES: Final = meter(
    "kafka.server:type=socket-server-metrics connection-close-total",
    "Connections closed since the broker started.",
    _LISTENER,
)
EXPIRED_CONNECTIONS: Final = meter(
    "kafka.server:type=socket-server-metrics expired-connections-killed-count",
    "Connections closed because they were idle for connections.max.idle.ms.",
    _LISTENER,
)
SUCCESSFUL_AUTHENTICATIONS: Final = meter(
    "kafka.server:type=socket-server-metrics successful-authentication-total",
    "TLS handshakes that were completed.",
    _LISTENER,
)
FAILED_AUTHENTICATIONS: Final = meter(
    "kafka.server:type=socket-server-metrics failed-authentication-total",
    "TLS handshakes that failed, were given up, or took too long.",
    _LISTENER,
)
REFUSED_CONNECTIONS: Final = meter(
    "sparklog:type=Listener,name=RefusedConnectionsPerSec",
    "Connections closed at once: max.connections, max.connections.per.ip or the process's descriptors.",
    _LISTENER,
)
