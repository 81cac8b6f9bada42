"""How long other clients wait while some ask for as much as one request may ask for.

    python -m benchmarks.long_requests --connections 8

A producer (librdkafka, `acks=all`, no linger) writes a record every 5 ms to a topic with three replicas, and
notes how long each acknowledgement took: alone; beside connections that send FindCoordinator of 1.5 million
empty keys, which is refused; and beside such that send the largest one that is accepted, each again as soon
as it is answered. Connections are spread over the brokers. What bounds the answer is said in docs/limits.md.
"""

import argparse
import contextlib
import itertools
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka.admin import AdminClient
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.static.primitive import i8

from benchmarks.acknowledgements import WARM_UP_S, acknowledged_ms, percentiles
from benchmarks.clusters import ClusterUnderTest, sparklog_cluster
from sparklog.protocol.codec.frames import request_encoder

TOPIC: Final = "beside"
ACCEPTED_KEYS: Final = 40_000
"""Just below what `sparklog.protocol.codec.allowance` lets one request have."""
REFUSED_KEYS: Final = 1_500_000
_LENGTH_BYTES: Final = 4


def _frame(keys: int) -> bytes:
    request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("",) * keys)
    return b"".join(bytes(chunk) for chunk in request_encoder(None)(request, 0))


def _addresses(cluster: ClusterUnderTest) -> list[tuple[str, int]]:
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10)
    return [(broker.host, broker.port) for broker in metadata.brokers.values()]


class _Asking(threading.Thread):
    """One connection that sends a frame again and again, and makes itself anew when it is closed."""

    def __init__(self, address: tuple[str, int], frame: bytes) -> None:
        super().__init__(daemon=True)
        self.asked = 0
        self._address = address
        self._frame = frame
        self._ended = threading.Event()

    def end(self) -> None:
        """Ask no more, once what was asked is answered."""
        self._ended.set()

    def run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError), socket.create_connection(self._address, 5) as connected:
                connected.settimeout(30)
                stream = connected.makefile("rb")
                while not self._ended.is_set():
                    self.asked += 1
                    connected.sendall(self._frame)
                    size = stream.read(_LENGTH_BYTES)
                    if len(size) < _LENGTH_BYTES:
                        break
                    stream.read(int.from_bytes(size, "big"))


@contextlib.contextmanager
def _beside(addresses: Sequence[tuple[str, int]], connections: int, keys: int) -> Iterator[list[_Asking]]:
    """Have connections ask for so many keys within the `with` block."""
    frame = _frame(keys)
    asking = [
        _Asking(address, frame) for address in itertools.islice(itertools.cycle(addresses), connections)
    ]
    for each in asking:
        each.start()
    try:
        yield asking
    finally:
        for each in asking:
            each.end()
        for each in asking:
            each.join()


def _line(name: str, took_ms: Sequence[float], asked: int) -> str:
    return f"| {name} | {asked:,} | {percentiles(took_ms)} |"


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--connections", type=int, default=8, help="how many ask for much (default: 8)")
    parser.add_argument("--seconds", type=float, default=20, help="for each line of the table (default: 20)")
    options = parser.parse_args()
    with sparklog_cluster() as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        addresses = _addresses(cluster)
        acknowledged_ms(cluster.bootstrap_servers, TOPIC, WARM_UP_S)
        lines = [_line("nobody", acknowledged_ms(cluster.bootstrap_servers, TOPIC, options.seconds), 0)]
        for name, keys in (("refused", REFUSED_KEYS), ("the largest accepted", ACCEPTED_KEYS)):
            with _beside(addresses, options.connections, keys) as asking:
                took_ms = acknowledged_ms(cluster.bootstrap_servers, TOPIC, options.seconds)
            lines.append(_line(f"{name}: {keys:,} keys", took_ms, sum(each.asked for each in asking)))
    print("| beside | requests | p50, ms | p99, ms | maximum, ms |")
    print("|---|---:|---:|---:|---:|")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
