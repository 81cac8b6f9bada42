"""Bytes that come to a listener: framing, dispatching, authentication and guards, as they are in production.

The first byte says who is at the other end (nobody yet, a stranger with and without an authorizer, the
inside, a stranger at the controller), in how many pieces the rest comes, and whether that is a stream or one
frame, whose length is put before it. Whatever comes, the answers are whole frames, and what only the inside
may ask is handled for nobody else.
"""

import struct
from typing import Any

from sparklog.node.acls.acl import Principal
from sparklog.node.security.application_secret import CLUSTER_MECHANISM, CLUSTER_PRINCIPAL
from sparklog.node.security.sasl.plain import PlainVerification
from sparklog.node.security.sasl.scram import SCRAM_SHA_256, ScramCredential, ScramVerification
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.connection import Connection
from sparklog.node.serving.machine.authenticator import Mechanisms
from sparklog.node.serving.requests import ANONYMOUS, Request
from sparklog.protocol.codec.apis import ApiKey
from tests.fuzz.finding import expect
from tests.fuzz.loop import Loop, Socket
from tests.fuzz.serving import Serving
from tests.fuzz.targets import Target

USER, PASSWORD, NONCE = "ann", "secret of ann", "servernonce"
CREDENTIAL = ScramCredential.of_password(SCRAM_SHA_256, PASSWORD, 4096, b"a salt of many bytes")
STREAM = 0x08
"""Set in the first byte of an input that is a stream, not one frame."""
_PIECES = (1, 2, 7, 40)
_CONTROLLERS = {ApiKey.ENVELOPE, ApiKey.BROKER_REGISTRATION, ApiKey.ALTER_PARTITION}


def target() -> Target:
    loop = Loop()
    seen: list[Request] = []
    mechanisms = Mechanisms(
        {
            CLUSTER_MECHANISM: lambda: _scram("127.0.0.1:9092", CLUSTER_PRINCIPAL),
            "PLAIN": lambda: PlainVerification({USER: PASSWORD}),
            SCRAM_SHA_256: lambda: _scram(USER, Principal("User", USER)),
        },
        ("PLAIN", SCRAM_SHA_256),
        {"PLAIN": 10_000},
    )
    cluster_mechanisms = Mechanisms({CLUSTER_MECHANISM: mechanisms.begin[CLUSTER_MECHANISM]})
    sasl = Authentication(mechanisms, principal=None, max_receive_bytes=4096)
    open_to_all, of_cluster = (
        Authentication(cluster_mechanisms),
        Authentication(cluster_mechanisms, principal=CLUSTER_PRINCIPAL),
    )
    servings = [
        (None, Serving(loop, "SASL", sasl, seen.append, asks=True)),
        (ANONYMOUS, Serving(loop, "PLAINTEXT", open_to_all, seen.append)),
        (ANONYMOUS, Serving(loop, "ASKING", open_to_all, seen.append, asks=True)),
        (CLUSTER_PRINCIPAL, Serving(loop, "INSIDE", of_cluster, seen.append, asks=True)),
        (ANONYMOUS, Serving(loop, "CONTROLLER", open_to_all, seen.append, is_controller=True)),
    ]

    def take(data: bytes) -> None:
        if not data:
            return
        mode, rest = data[0], data[1:]
        principal, serving = servings[(mode & 0x07) % len(servings)]
        if not mode & STREAM:
            rest = struct.pack(">i", len(rest)) + rest
        connected = Socket(7)
        connection = Connection(serving, connected.as_socket(), "10.0.0.1:4711")
        seen.clear()
        serving.take_in(connected, connection, rest, _PIECES[mode >> 4 & 0x03])
        _check_answers(bytes(connected.sent))
        for request in seen:
            who = request.principal
            expect(principal is None or who is principal or _has_logged_in(rest), f"handled for {who}")
            if serving.name == "CONTROLLER" and request.api_key in _CONTROLLERS:
                expect(who is CLUSTER_PRINCIPAL, f"{request.api_key.name} is handled for {who}")
        expect(connected.closed and not loop.readers and not loop.writers, "something is left of it")

    return take


def _has_logged_in(data: bytes) -> bool:
    return CLUSTER_MECHANISM.encode() in data


def _scram(user: str, principal: Principal) -> Any:
    return ScramVerification(
        SCRAM_SHA_256, lambda name: CREDENTIAL if name == user else None, lambda _: principal, NONCE
    )


def _check_answers(sent: bytes) -> None:
    position = 0
    while position < len(sent):
        expect(len(sent) - position >= 4, "an answer is cut off in its length")
        (size,) = struct.unpack_from(">i", sent, position)
        position += 4 + size
        expect(size >= 0 and position <= len(sent), f"an answer of {size} bytes is cut off")
