"""Use of quotas by clients (Kafka's ClientQuotaManager and ClientRequestQuotaManager)."""

from typing import Final

from sparklog.node.metrics.names import Kind, Metric

_TAGS: Final = ("client-id", "user")


def _quota(type_: str, attribute: str, meaning: str) -> Metric:
    return Metric("kafka.server", type_, None, Kind.GAUGE, meaning, _TAGS, attribute)


BYTES_PRODUCED: Final = _quota("Produce", "byte-rate", "Bytes a second of a client's Produce requests.")
BYTES_CONSUMED: Final = _quota("Fetch", "byte-rate", "Bytes a second of records that a client fetches.")
REQUEST_TIME: Final = _quota("Request", "request-time", "Per cent of the loop that a client's requests take.")
THROTTLE_TIMES: Final = {
    type_: _quota(type_, "throttle-time", f"Milliseconds that a client waits for each {of}, on average.")
    for type_, of in (("Produce", "Produce"), ("Fetch", "Fetch"), ("Request", "request"))
}
"""By type, for clients that were throttled."""
