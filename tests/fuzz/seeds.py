"""Makes the corpus: `python -m tests.fuzz.seeds`. What earlier findings have left in it stays.

A seed is something of its kind that is right, so that mutations begin there. They are the same each time, but
for what is signed or has a key in it, which is left as it is if it is there.
"""

import json
import random
import ssl
import struct
from collections.abc import Iterator
from typing import Any

from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type
from sparklog.protocol.codec.encoder import encode_to_bytes
from sparklog.protocol.codec.frames import request_encoder
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec
from tests.fuzz.corpus import read_corpus, write_corpus
from tests.fuzz.pieces import joined
from tests.fuzz.targets import TARGETS

REGRESSION = "found-"
"""With which the names of earlier findings begin."""
_SHORT_BYTES = 120
_TRIES = 200


def requests() -> Iterator[tuple[str, bytes]]:
    """A request of each version of each API, as short as one that says something is."""
    return _frames()


def fixed() -> Iterator[tuple[str, bytes]]:
    """A Produce in each version, a follower's Fetch, and the response to it."""
    from tests.unit.sparklog.protocol.codec.fixed import requests as usual

    for version in usual.VERSIONS:
        yield f"produce-{version}", b"\0" + usual.frame_of(usual.produce(version))
    request, response = usual.usual_request(), usual.usual_response()
    yield "fetch", b"\0" + b"".join(request_encoder("c")(request, 1))[4:]
    yield "fetched", b"\1" + b"".join(response.frame(1))[4:]  # type: ignore[arg-type]


def connections() -> Iterator[tuple[str, bytes]]:
    """The newest version of each API from a stranger; SASL from nobody."""
    from tests.fuzz.targets.connections import STREAM

    newest = {name.rpartition("-")[0]: (name, frame) for name, frame in _frames()}
    for number, (name, frame) in enumerate(newest.values()):
        yield name, bytes([1 + number % 4]) + frame
    frames = [_framed(each) for each in _sasl_frames()]
    yield "sasl-plain", bytes([STREAM]) + b"".join(frames)
    yield "sasl-plain-on-plaintext", bytes([STREAM | 1]) + b"".join(frames)
    yield "sasl-in-pieces", bytes([STREAM | 0x30]) + b"".join(frames)
    yield "two-requests", bytes([STREAM | 1]) + b"".join(map(_framed, [newest["METADATA"][1]] * 2))
    yield "long", bytes([STREAM]) + struct.pack(">i", 100 << 20) + b"x" * 10


def batches() -> Iterator[tuple[str, bytes]]:
    """A batch in each codec, old message sets, a marker, and batches that are looked into."""
    from tests.fuzz.targets.batches import COMPRESS, KEYS, NOW_MS, RECOMPRESS, REPAIR

    records = [
        SimpleRecord(b"key", b"value", (("h", b"1"), ("n", None)), NOW_MS),
        SimpleRecord(None, None, (), NOW_MS),
        SimpleRecord(b"k", b"v" * 40, (), NOW_MS + 1),
    ]
    for codec in Codec:
        batch = build_batch(records, codec=codec)
        yield codec.name.lower(), bytes([REPAIR]) + batch
        plain = bytearray(build_batch(records))
        plain[22] |= codec
        yield f"{codec.name.lower()}-to-compress", bytes([REPAIR | COMPRESS]) + plain
        yield f"{codec.name.lower()}-examined", bytes([REPAIR | KEYS | RECOMPRESS | codec << 4]) + batch
    yield "control", bytes([REPAIR]) + build_batch(records, control=True)
    yield (
        "idempotent",
        bytes([REPAIR]) + build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0),
    )
    yield "two", bytes([0]) + build_batch(records[:1]) + build_batch(records[:1], base_offset=1)
    equal = [SimpleRecord(b"0123456789%04d" % number, b"12345678", (), NOW_MS) for number in range(20)]
    yield "equal-lengths", bytes([REPAIR | KEYS]) + build_batch(equal)
    for magic, size in ((0, 14), (1, 22)):
        message = bytes(4) + bytes([magic, 0]) + bytes(size - 14 + 8) + struct.pack(">i", -1) + b"\0\0\0\1v"
        yield f"message-set-{magic}", bytes([0]) + struct.pack(">qi", 0, len(message)) + message


def snapshots() -> Iterator[tuple[str, bytes]]:
    """Records of each type alone, together, and a snapshot as it lies on the disk."""
    from sparklog.node.metadata.framing import encode_record
    from sparklog.node.metadata.image import EMPTY_IMAGE
    from sparklog.node.metadata.schemas import RECORD_TYPES
    from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot, encode_snapshot
    from tests.fuzz.targets.snapshots import with_lengths
    from tests.unit.sparklog.node.serving.entities import arbitrary_entity

    values = []
    for record_type in RECORD_TYPES.values():
        value = _shortest(lambda source, kind=record_type: encode_record(arbitrary_entity(kind, source)))
        values.append(value)
        yield record_type.__name__, b"\2" + value
        yield f"snapshot-of-{record_type.__name__}", b"\1" + with_lengths([value])
    from dataclasses import replace

    image = replace(EMPTY_IMAGE, offset=99, leader_epoch=3, features={"metadata.version": 25})
    batches = list(encode_snapshot(MetadataSnapshot(image, None, 5)))
    yield "whole", b"\0" + with_lengths(batches)


def files() -> Iterator[tuple[str, bytes]]:
    """Each file, as it is written."""
    from sparklog.node.storage.machine.producer_states import BatchMetadata, ProducerState
    from sparklog.node.storage.producers.producer_snapshots import encode_snapshot

    state = ProducerState(3, 1_600_000_000_000)
    state.batches.append(BatchMetadata(0, 9, 19, 9, 1_600_000_000_000))
    producers = encode_snapshot({7: state, 8: ProducerState(0, 5)})
    contents = [
        producers,
        producers,
        b"0\n2\nflights 0 17\nflights 1 12\n",
        b"0\n2\n0 0\n3 17\n",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
        b"cluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\nversion=1\n",
        b'{"leaderId":-1,"leaderEpoch":2,"votedId":1000,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ",'
        b'"data_version":1}',
        b'{"version":0,"bootId":"b","brokerEpoch":7}',
        b'{"version":0,"ports":{"PLAINTEXT":9092}}',
    ]
    for kind, content in enumerate(contents):
        yield f"file-{kind}", bytes([kind]) + content


def coordinators() -> Iterator[tuple[str, bytes]]:
    """A record of each type in its newest version, and what members say."""
    from kio.schema.consumer_protocol_assignment.v3 import data as assignment
    from kio.schema.consumer_protocol_subscription.v3 import data as subscription

    from sparklog.executor.coordinators.records.framing import (
        CONSUMER_OFFSETS_RECORDS,
        TRANSACTION_STATE_RECORDS,
        encode_key,
        encode_value,
    )
    from sparklog.user.sink.machine.decisions import IndexEntry
    from tests.unit.sparklog.node.serving.entities import arbitrary_entity

    for kind, types in enumerate((CONSUMER_OFFSETS_RECORDS, TRANSACTION_STATE_RECORDS)):
        for each in types._types.values():

            def made(source: random.Random, each: Any = each) -> bytes:
                key, value = (arbitrary_entity(part, source) for part in (each.key_type, each.value_type))
                return joined((encode_key(key), encode_value(value, each.value_type.__highest_version__)))

            yield each.value_type.__name__, bytes([kind]) + _shortest(made)
    for kind, entity_type in (
        (2, subscription.ConsumerProtocolSubscription),
        (3, assignment.ConsumerProtocolAssignment),
    ):
        made_of = _shortest(lambda source, it=entity_type: encode_to_bytes(arbitrary_entity(it, source)))
        yield entity_type.__name__, bytes([kind]) + b"\0\3" + made_of
    decision = b'{"version":1,"batch":7,"run":"r","formerRuns":["q"],"rows":3,"waitsForEver":false,'
    yield "decision", b"\4" + decision + b'"transactions":[["t",1,0]]}'
    yield "index-entry", b"\5" + IndexEntry(7, "r1", "r0").encode().encode()
    yield "sink-id", b"\6query.0"
    yield "control-record", b"\7" + joined((b"\0\0\0\2", b"\0\0\0\0\0\1"))


def sasl() -> Iterator[tuple[str, bytes]]:
    """Exchanges that are right."""
    from sparklog.node.security.sasl.scram import ScramCredential, ScramLogin, ScramVerification
    from tests.fuzz.targets import sasl as target

    name = target.USER.encode()
    yield "plain", b"\0\0" + name + b"\0" + target.PASSWORD.encode()
    yield "plain-as-himself", b"\0" + name + b"\0" + name + b"\0" + target.PASSWORD.encode()
    for kind in (1, 2):
        mechanism = target.KINDS[kind]
        credential = ScramCredential.of_password(mechanism, target.PASSWORD, target.ITERATIONS, target.SALT)
        login = ScramLogin(mechanism, target.USER, target.PASSWORD, nonce=target.CLIENT_NONCE)
        server = ScramVerification(mechanism, lambda _, it=credential: it, nonce=target.SERVER_NONCE)
        client_first = login.first()
        server_first = server.respond(client_first)
        client_final = login.respond(server_first) or b""
        server_final = server.respond(client_final)
        yield f"scram-{kind}", bytes([kind]) + joined((client_first, client_final))
        yield f"scram-login-{kind}", bytes([kind + 2]) + joined((server_first, server_final))
    from sparklog.node.security.oauth.unsecured_tokens import unsecured_token
    from sparklog.node.security.sasl.oauthbearer import OAuthBearerLogin
    from tests.identity_provider import IdentityProvider

    claims = {"sub": "ann", "iat": 1_000, "exp": 1 << 40, "scope": ["a"]}
    yield "bearer", b"\5" + OAuthBearerLogin(unsecured_token(claims), {"logicalCluster": "1"}).first()
    for algorithm in (b"none", b"RS256"):
        header = b'{"alg":"%s","typ":"JWT","kid":"key-1"}' % algorithm
        yield f"token-{algorithm.decode()}", b"\6" + joined((header, json.dumps(claims).encode()))
    yield "key-set", b"\7" + IdentityProvider().key_set()
    yield "header-in-brackets", b"\6" + joined((b"[" * 3000, b"{}"))
    yield "scram-with-authorization-id", b"\1" + b"n,a=a=2Cn=3Dn,n=a=2Cn=3Dn,r=abc"


def certificates() -> Iterator[tuple[str, bytes]]:
    """A client's certificate, stores of it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    from tests.certificates import Authority
    from tests.fuzz.targets.certificates import PASSWORD

    authority = Authority()
    named = [
        (NameOID.COUNTRY_NAME, "NO"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "a, b"),
        (NameOID.COMMON_NAME, "Å"),
    ]
    certified = authority.certify(x509.Name([x509.NameAttribute(oid, value) for oid, value in named]))
    yield "der", b"\0" + certified.certificate.public_bytes(Encoding.DER)
    yield "der-of-authority", b"\0" + authority.certificate.public_bytes(Encoding.DER)
    pem = certified.key_pem + certified.certificate_pem
    yield "pem-key-store", b"\1" + pem.encode()
    yield "pem-trust-store", b"\2" + authority.pem.encode()
    yield "pkcs12-key-store", b"\3" + certified.pkcs12(PASSWORD)
    yield "pkcs12-trust-store", b"\4" + certified.pkcs12(PASSWORD)


def tls() -> Iterator[tuple[str, bytes]]:
    """Greetings of both versions, and requests behind whole handshakes."""
    from tests.fuzz.targets.connections import NONCE

    for number, version in enumerate((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)):
        context = ssl.create_default_context()
        context.minimum_version = context.maximum_version = version
        outgoing = ssl.MemoryBIO()
        client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            yield f"hello-{number}", b"\0" + outgoing.read()
    request = _framed(next(frame for name, frame in _frames() if name.startswith("METADATA-")))
    yield "plain-text", b"\0" + request
    yield "changed", b"\1" + b"\0\10x"
    yield "garbage-behind", b"\2" + NONCE.encode()
    yield "alert-behind", b"\2" + bytes.fromhex("15030300020100")
    yield "request", b"\3" + request
    yield "request-in-pieces", b"\x33" + request.replace(b"\xff", b"\0")


def options() -> Iterator[tuple[str, bytes]]:
    """Options that are right, of each kind."""
    from tests.fuzz.targets.options import SECRET

    login = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{SECRET}";'
    )
    texts = (
        'subscribe=a,b\nstartingOffsets={"a":{"0":1},"b":{"0":-2}}\nkafka.bootstrap.servers=h:1,[::1]:2\n'
        "minPartitions=3\nincludeHeaders=true\nkafka.fetch.max.bytes=1000",
        f"subscribePattern=a.*\nmaxOffsetsPerTrigger=10\nmaxTriggerDelay=15m\nkafka.bootstrap.servers=h:1\n"
        f"kafka.security.protocol=SASL_SSL\nkafka.sasl.mechanism=PLAIN\nkafka.sasl.jaas.config={login}",
        f"topic=t\nkafka.acks=all\nkafka.ssl.truststore.password={SECRET}\nkafka.security.protocol=SSL\n"
        f"kafka.ssl.truststore.location=/t.p12\nkafka.ssl.truststore.type=PKCS12",
        login,
        '{"a":[0,1]}',
        '{"a":{"0":23,"1":-2}}',
        '{"a":{"0":1357016400000}}',
        "2024-01-01T00:00:00Z",
        r"\Qa.\E[a-z&&[^x]]\p{Digit}+",
        "a:1,[::1]:9092",
    )
    for kind, text in enumerate(texts):
        yield f"option-{kind}", bytes([kind]) + text.encode()


def configs() -> Iterator[tuple[str, bytes]]:
    """Configurations that are right, of each kind."""
    from tests.fuzz.targets.options import SECRET

    texts = (
        "listeners=A://127.0.0.1:0,B://[::1]:0\nlistener.security.protocol.map=A:PLAINTEXT,B:SASL_PLAINTEXT\n"
        "listener.name.b.sasl.enabled.mechanisms=PLAIN\nlistener.name.b.plain.sasl.jaas.config="
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="{SECRET}";',
        "cleanup.policy=compact,delete\nretention.ms=-1\ncompression.type=zstd\nsegment.bytes=1048576",
        "# of a file\na.b = c\\\n  d\nk\\u00e9 : v",
        "A:SSL,B:SASL_SSL",
        "A://127.0.0.1:9092,SSL://[::1]:0",
        "h:1,SSL://h:2",
        "RULE:^CN=(.*?),.*$/$1/L,RULE:a/\\$b/U,DEFAULT\nCN=Ann,O=Shop",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "topic.a_b-C",
        "[::ffff:10.0.0.7]:4711",
    )
    for kind, text in enumerate(texts):
        yield f"config-{kind}", bytes([kind]) + text.encode()


SEEDS = {
    each.__name__: each
    for each in (requests, fixed, connections, batches, snapshots, files, coordinators, sasl)
} | {each.__name__: each for each in (certificates, tls, options, configs)}
"""What makes the seeds of each target."""
_RANDOM = {"certificates", "sasl", "tls"}


def _frames() -> Iterator[tuple[str, bytes]]:
    from tests.unit.sparklog.node.serving.entities import arbitrary_entity

    encode = request_encoder("c")
    for api_key in ApiKey:
        versions = known_versions(api_key)
        for version in range(versions.min_version, versions.max_version + 1):
            entity_type = request_type(api_key, version)

            def made(source: random.Random, entity_type: Any = entity_type) -> bytes:
                return b"".join(encode(arbitrary_entity(entity_type, source), 1))[4:]

            yield f"{api_key.name}-{version}", _shortest(made)


def _shortest(made: Any) -> bytes:
    """Return the longest of what is short, of many; the shortest if nothing is."""
    source = random.Random(0)
    all_made = {made(source) for _ in range(_TRIES)}
    short = [each for each in all_made if len(each) <= _SHORT_BYTES]
    return (
        max(short, key=lambda each: (len(each), each))
        if short
        else min(all_made, key=lambda each: (len(each), each))
    )


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _sasl_frames() -> list[bytes]:
    from kio.schema.metadata.v12.request import MetadataRequest
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

    from tests.fuzz.targets.connections import PASSWORD, USER

    encode = request_encoder("c")
    token = f"\0{USER}\0{PASSWORD}".encode()
    entities = (
        SaslHandshakeRequest(mechanism="PLAIN"),
        SaslAuthenticateRequest(auth_bytes=token),
        MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=True
        ),
    )
    return [b"".join(encode(entity, number))[4:] for number, entity in enumerate(entities)]


def main() -> None:
    """Write the corpus of each target."""
    assert set(SEEDS) == set(TARGETS), "each target has seeds"
    for name, made in SEEDS.items():
        known = read_corpus(name)
        kept = [(each, data) for each, data in known.items() if each.startswith(REGRESSION)]
        fresh = [(each, data) for each, data in known.items() if not each.startswith(REGRESSION)]
        if name not in _RANDOM or not fresh:
            fresh = list(made())
        write_corpus(name, [*kept, *fresh])


if __name__ == "__main__":
    main()
