"""What live brokers and a live controller make of bytes that are no request: they close, and serve on.

`survivor` sees to it that all brokers live after each test, and that nothing that was acknowledged is lost
after all of them.
"""

import os
import random
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from kio.schema.errors import ErrorCode

from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type
from tests.cluster import LocalCluster
from tests.compat.raw_frames import forget_peak, frame, frames_in, header, peak_resident_bytes, send_and_read


class Target(NamedTuple):
    """A listener, and the process behind it."""

    address: tuple[str, int]
    process_id: int


@pytest.fixture(params=["broker", "controller"])
def target(request: pytest.FixtureRequest, cluster: LocalCluster, survivor: str) -> Target:
    """Where clients may connect: a broker, or the controller, which runs in this process."""
    if request.param == "broker":
        return Target(cluster.address(0), cluster.process_id(0))
    host, _, port = cluster.controller.bootstrap_servers.rpartition(":")
    return Target((host, int(port)), os.getpid())


GREETINGS = {
    "at once": b"",
    "after ApiVersions v0": frame(header(18, 0)),
    "after ApiVersions v4": frame(header(18, 4, flexible=True) + b"\x02a\x021\x00"),
}


@pytest.fixture(params=GREETINGS)
def greeting(request: pytest.FixtureRequest) -> Iterator[bytes]:
    """What is said, and answered, before the rubbish: it must not make a frame more believable."""
    yield GREETINGS[request.param]


def answers_to(target: Target, greeting: bytes, rubbish: bytes) -> int:
    """Return how many answers came to `rubbish` before the connection was closed."""
    return len(frames_in(send_and_read(target.address, greeting + rubbish))) - bool(greeting)


RANDOM = random.Random(20260101)


RUBBISH = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + RANDOM.randbytes(400),
    "zeros": b"\x00" * 64,
    "ones": b"\xff" * 64,
    "unknown API key": frame(header(999, 0)),
    "negative API key": frame(header(-1, 0)),
    "an API that is not served": frame(
        # What Kafka's controllers say to each other, whole and well-formed; a broker of Kafka's closes, too.
        header(ApiKey.CONTROLLER_REGISTRATION, 0, flexible=True) + b"\x00" * 21 + b"\x01\x01\x00"
    ),
    "unknown version of Produce": frame(header(0, 99)),
    "version of Produce that is gone": frame(header(0, 2) + b"\x00" * 20),
    "negative version": frame(header(3, -1)),
    "two billion topics": frame(header(3, 1) + struct.pack(">i", 2**31 - 1)),
    "as many, flexible": frame(header(3, 9, flexible=True) + b"\xff\xff\xff\xff\x07"),
    "a string beyond the frame": frame(header(3, 1) + struct.pack(">ih", 1, 30_000)),
    "not UTF-8": frame(header(3, 1) + struct.pack(">ih2s", 1, 2, b"\xff\xfe")),
    "a client id beyond the frame": frame(struct.pack(">hhih", 3, 1, 7, 30_000)),
    "half a header": frame(struct.pack(">hh", 3, 1)),
    "no header": frame(b""),
    "a negative length": frame(b"", claimed_bytes=-5),
    "a length beyond the limit": frame(b"\x00" * 100, claimed_bytes=104_857_601),
    "the largest length": frame(b"\x00" * 100, claimed_bytes=2**31 - 1),
}


def test_rubbish_closes_the_connection_without_an_answer(target: Target, greeting: bytes) -> None:
    """Kafka closes too; what the client then sees is a lost connection, and the log says why."""
    answers = {what: answers_to(target, greeting, rubbish) for what, rubbish in RUBBISH.items()}
    assert answers == dict.fromkeys(RUBBISH, 0)


def test_broker_takes_no_registration(cluster: LocalCluster, survivor: str) -> None:
    """What brokers and the controller say to each other is not for every listener."""
    for api_key in (ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.ALTER_PARTITION):
        version = known_versions(api_key).max_version
        assert send_and_read(cluster.address(0), frame(header(api_key, version, flexible=True))) == b""


def test_random_bytes_close_the_connection_only(target: Target) -> None:
    """Port scanners find every open port. Their connections end here, for what they say may be a prefix."""
    chance = random.Random(20260101)
    for _ in range(60):
        prefix = chance.randbytes(chance.randrange(1, 3_000))
        assert send_and_read(target.address, prefix, nothing_more=True) == b""
        assert send_and_read(target.address, frame(chance.randbytes(chance.randrange(0, 300)))) == b""


def test_frames_that_claim_to_be_large_take_no_memory(target: Target, greeting: bytes) -> None:
    """A length is only a claim; memory follows what was received."""
    before = forget_peak(target.process_id)
    connections = []
    try:
        for _ in range(20):
            connection = socket.create_connection(target.address, timeout=5)
            connections.append(connection)
            connection.sendall(greeting + frame(b"\x00" * 10, claimed_bytes=100_000_000))
            while greeting and not connection.recv(65536):
                pass
        # Once a later connection is answered, what the earlier ones sent has been looked at.
        assert answers_to(target, GREETINGS["after ApiVersions v0"], frame(b"")) == 0
        assert peak_resident_bytes(target.process_id) - before < 50_000_000
    finally:
        for connection in connections:
            connection.close()


def served_versions() -> Iterator[tuple[ApiKey, int, bool]]:
    """Yield every API version a listener serves, and whether its requests are flexible.

    But for UnregisterBroker: zeros tell it broker 0, and what follows a request in its frame is passed over.
    """
    served = {*CLIENT_VERSIONS, ApiKey.API_VERSIONS, *TO_THE_CONTROLLER} - {ApiKey.UNREGISTER_BROKER}
    for api_key in sorted(served):
        versions = CLIENT_VERSIONS.get(api_key, known_versions(api_key))
        for version in range(versions.min_version, versions.max_version + 1):
            yield api_key, version, bool(request_type(api_key, version).__flexible__)


TO_THE_CONTROLLER = (
    ApiKey.ALTER_PARTITION,
    ApiKey.ENVELOPE,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
CLAIMS = {
    True: [b"\xff\xff\xff\xff\x07" * 20, b"\x00" * 13 + b"\xff\xff\xff\xff\x07" * 20],
    False: [
        struct.pack(">i", 2**31 - 1) * 20,
        b"\x00" * 14 + struct.pack(">i", 2**31 - 1) * 20,
        b"\x7f\xff" * 40,
    ],
}
"""By whether requests are flexible: lengths of all that has one, and after a few fixed fields."""


def test_arrays_and_strings_that_claim_to_be_large_take_no_memory(target: Target) -> None:
    """In no version of any API may a count be believed before the bytes are there."""
    before = forget_peak(target.process_id)
    for api_key, version, flexible in served_versions():
        for claim in CLAIMS[flexible]:
            request = frame(header(api_key, version, flexible=flexible) + claim)
            send_and_read(target.address, request, nothing_more=True)
    assert peak_resident_bytes(target.process_id) - before < 50_000_000


def test_api_versions_of_an_unknown_version_is_answered_in_version_zero(target: Target) -> None:
    """That is how a newer client finds out what it may speak, on the same connection."""
    unknown = frame(header(18, 99) + b"\x05\x00\x01")
    end = frame(header(999, 0))
    first, second = frames_in(send_and_read(target.address, unknown + frame(header(18, 0)) + end))
    assert struct.unpack_from(">ih", first) == (7, ErrorCode.unsupported_version)
    assert struct.unpack_from(">ih", second) == (7, ErrorCode.none)
