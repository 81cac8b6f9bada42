"""`python -m tests.strangers`: a thousand connections that announce much: what they cost a broker and others.

One broker is a process of its own, and so are the strangers; a client asks for ApiVersions all the while.
Each kind of stranger announces a frame and sends a part of it, and then nothing more: at a listener of SASL
more than it may (it is closed at once) or just less, and at one of PLAINTEXT, where nobody has to say who
he is.
"""

import argparse
import contextlib
import multiprocessing
import resource
import socket
import statistics
import struct
import sys
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

from tests.cluster import LocalCluster
from tests.compat.raw_frames import frame, header, resident_bytes

MEASURED_S = 4.0
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,STRANGERS://127.0.0.1:0",
    "listener.security.protocol.map": "STRANGERS:SASL_PLAINTEXT",
    "listener.name.strangers.sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


class Kind(NamedTuple):
    """What strangers do, and where."""

    name: str
    listener: int
    announced_bytes: int
    sent_bytes: int


KINDS = (
    Kind("SASL, 100 MiB announced, 64 KiB sent", 1, 100 << 20, 64 << 10),
    Kind("SASL, 511 KiB announced, 480 KiB sent", 1, 511 << 10, 480 << 10),
    Kind("PLAINTEXT, 100 MiB announced, 64 KiB sent", 0, 100 << 20, 64 << 10),
)


def strange(address: tuple[str, int], count: int, kind: Kind, told: Connection) -> None:
    """Be so many strangers until told to end; tell how many are left then."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    said = struct.pack(">i", kind.announced_bytes) + bytes(kind.sent_bytes)
    connections = []
    for _ in range(count):
        connection = socket.create_connection(address)
        connections.append(connection)
        with contextlib.suppress(OSError):
            connection.settimeout(1)
            connection.sendall(said)
    told.send("all are there")
    told.recv()
    left = 0
    for connection in connections:
        connection.setblocking(False)
        try:
            connection.recv(1)
        except BlockingIOError:
            left += 1
        except OSError:
            pass
    told.send(left)


def milliseconds(
    address: tuple[str, int], until: "float | None", told: "Connection | None" = None
) -> list[float]:
    """Return how long each request takes, until a time, or something is told."""
    took = []
    asked = frame(header(18, 0))
    with socket.create_connection(address, timeout=30) as connection:
        while until is None or time.monotonic() < until:
            if told is not None and told.poll():
                break
            began = time.perf_counter()
            connection.sendall(asked)
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            connection.recv(size, socket.MSG_WAITALL)
            took.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)
    return took


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.strangers")
    parser.add_argument("--connections", type=int, default=1000)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with LocalCluster(brokers=1, config=CONFIG) as cluster:
        registration = cluster.image.brokers[0]
        addresses = [(each.host, each.port) for each in registration.listeners[:2]]
        process_id = cluster.process_id(0)
        for kind in KINDS:
            alone = milliseconds(addresses[0], time.monotonic() + MEASURED_S)
            memory = resident_bytes(process_id)
            here, there = context.Pipe()
            arguments = (addresses[kind.listener], given.connections, kind, there)
            strangers = context.Process(target=strange, args=arguments)
            strangers.start()
            arriving = milliseconds(addresses[0], None, here)
            here.recv()
            beside = milliseconds(addresses[0], time.monotonic() + MEASURED_S)
            peak = resident_bytes(process_id)
            here.send("end")
            left = here.recv()
            strangers.join()
            print(f"{kind.name}: {left} of {given.connections} are left")
            print(f"    memory {memory >> 20} MiB before, {peak >> 20} MiB with them")
            print(
                f"    p99 {p99(alone):.1f} ms before, {p99(arriving):.1f} ms while they come, "
                f"{p99(beside):.1f} ms beside them",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
