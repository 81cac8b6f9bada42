"""Configuration of a client, as typed values with Kafka's defaults.

The names are Kafka's option names with dots as underscores; four defaults differ. A Spark task moves bulk
data: larger fetches (`max.partition.fetch.bytes`) and larger batches (`batch.size`). A dead broker's
partitions have new leaders within tens of milliseconds: `retry.backoff.ms` matches that, the first pauses are
equal, and only continued failures make them grow; `default.api.timeout.ms` covers the fencing of a broker
that hangs.
"""

from dataclasses import dataclass, field
from typing import Final

from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.security.sasl.mechanism import Login
from sparklog.node.security.tls.settings import TlsSettings
from sparklog.node.serving.tls.tls_stream import ClientTls
from sparklog.protocol.records.codecs import Codec

DEFAULT_BATCH_SIZE_BYTES: Final = 512 * 1024
DEFAULT_MAX_PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024
_EVEN_RETRY_PAUSES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    bootstrap_servers: tuple[tuple[str, int], ...]
    of_this_application: bool = False
    """Whether the cluster belongs to this Spark application, and the bootstrap server is its controller,
    in the driver. That one listens while the cluster runs: a refused connection means that it was stopped."""
    client_id: str = "sparklog"
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    unknown_topic_timeout_ms: int = 3_000
    """Time for which an expected topic may be missing from the metadata before it is an error."""
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 1_000
    tls: TlsSettings | ClientTls | None = None
    """Encryption of connections; None for plain text."""
    max_response_bytes: int = 1 << 30
    login: Login | None = field(default=None, repr=False)
    """Identity of this client; None without SASL."""

    @property
    def retry_backoff(self) -> ExponentialBackoff:
        return ExponentialBackoff(self.retry_backoff_ms, self.retry_backoff_max_ms, _EVEN_RETRY_PAUSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    max_bytes: int = 50 * 1024 * 1024
    max_partition_bytes: int = DEFAULT_MAX_PARTITION_FETCH_BYTES
    max_wait_ms: int = 500
    poll_timeout_ms: int = 120_000
    """Time for which a committed offset may stay unreadable, across leader changes, before it is an error."""
    check_crcs: bool = True
    read_committed: bool = False
    client_rack: str | None = None
    """The reader's rack: replicas there are preferred to a leader elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    acks: int = -1
    idempotent: bool = True
    batch_size_bytes: int = DEFAULT_BATCH_SIZE_BYTES
    max_request_bytes: int = 1024 * 1024
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    max_in_flight: int = 5
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    buffer_bytes: int = 32 * 1024 * 1024


def parse_bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Return the host and port of each address in a comma-separated list.

    >>> parse_bootstrap_servers("broker-1:9092, [::1]:9093")
    (('broker-1', 9092), ('::1', 9093))

    Raises:
        ValueError: an address is not `host:port`, or there is none.
    """
    addresses = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = entry.rpartition(":")
        if not separator or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"'{entry}' is not an address of the form host:port")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise ValueError("no address of the form host:port is given")
    return tuple(addresses)
