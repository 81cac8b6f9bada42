"""How long acknowledgements take while something else goes on: several commands make a table of that."""

import statistics
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

WARM_UP_S: Final = 3.0
_PACE_S: Final = 0.005


def acknowledged_ms(bootstrap_servers: str, topic: str, seconds: float) -> list[float]:
    """Write records of 100 bytes (librdkafka, `acks=all`, no linger); return what each took, in milliseconds.

    The next is written when one is acknowledged, or after 5 ms: a closed loop, as long as none takes longer.

    Raises:
        RuntimeError: a record was not acknowledged.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0})
    took_ms: list[float] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not acknowledged: {error}")
        took_ms.append(1000 * message.latency())

    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        producer.produce(topic, b"x" * 100, on_delivery=delivered)
        producer.poll(_PACE_S)
    producer.flush(30)
    return took_ms


def percentiles(took_ms: Sequence[float]) -> str:
    """Return the cells of a table: p50, p99 and the maximum."""
    hundredths = statistics.quantiles(took_ms, n=100)
    return f"{hundredths[49]:.1f} | {hundredths[98]:.1f} | {max(took_ms):.0f}"
