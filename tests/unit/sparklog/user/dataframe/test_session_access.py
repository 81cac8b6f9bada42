"""The application's own sessions and their cluster: nothing is to be said, whatever its listeners ask for."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparklog.node.acls.acl import Principal
from sparklog.node.config import BrokerConfig
from sparklog.node.config.listener_security.listener_sasl import listener_authentication
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.config.listener_security.session_access import session_access
from sparklog.node.security.application_secret import (
    CLUSTER_MECHANISM,
    SESSION,
    SESSION_MECHANISM,
    ApplicationSecret,
)
from sparklog.node.security.sasl.mechanism import SaslError
from sparklog.node.security.sasl.password_login import PasswordLogin
from sparklog.node.security.session_access import SessionAccess
from sparklog.node.security.tls.settings import TlsSettings
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.requests import ANONYMOUS, Api, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import KafkaError
from sparklog.user.client.connecting import connected
from sparklog.user.dataframe.application_cluster import ApplicationAddress
from sparklog.user.dataframe.kafka_options import DataSourceOptionError, KafkaOptions
from tests.certificates import Authority, server_keys
from tests.unit.sparklog.node.serving.serving import heartbeat, heartbeat_response, run, serving

SECRET = ApplicationSecret.new()
SCRAM = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
CERTIFICATE = {"ssl.client.auth": "required", "ssl.truststore.type": "PEM"}

CERTIFICATE_ALONE = {"listener.name.sasl_ssl.ssl.client.auth": "required"}


def configured(protocol: str, directory: Path, **keys: str) -> BrokerConfig:
    """Return the configuration of one listener; its own certificate names another host."""
    authority = Authority()
    (directory / "ca.pem").write_text(authority.pem)
    given = {"listeners": f"{protocol}://127.0.0.1:0", **keys}
    if "SSL" in protocol:
        given |= server_keys(authority.certify(hosts=["elsewhere.example"]), directory)
    if "ssl.truststore.type" in keys:
        given["ssl.truststore.location"] = str(directory / "ca.pem")
    return BrokerConfig.from_mapping(given)


def told(access: SessionAccess, address: str, **settings: str) -> Any:
    """Return the client's configuration of a session that is told this much, and given these options."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return KafkaOptions(given, ApplicationAddress(address, access), report=lambda _: None).client()


@pytest.mark.parametrize(
    ("protocol", "keys", "principal"),
    [
        ("PLAINTEXT", {}, ANONYMOUS),
        ("SSL", {}, ANONYMOUS),
        ("SSL", CERTIFICATE, SESSION),
        ("SASL_PLAINTEXT", SCRAM, SESSION),
        ("SASL_SSL", SCRAM, SESSION),
        ("SASL_SSL", SCRAM | CERTIFICATE, SESSION),
        ("SASL_SSL", SCRAM | CERTIFICATE | CERTIFICATE_ALONE, SESSION),
    ],
)
def test_session_gets_into_its_own_cluster_without_options(
    protocol: str, keys: dict[str, str], principal: Principal, tmp_path: Path
) -> None:
    """It is somebody where everybody has to be; another application's session is nobody there."""
    config = configured(protocol, tmp_path, **keys)
    own_addresses: set[str] = set()
    heard: list[Principal] = []

    def answer(request: Request) -> Any:
        heard.append(request.principal)
        return heartbeat_response(1)

    def ask(secret: ApplicationSecret, port: int) -> None:
        access = SessionAccess.from_text(session_access(config, secret).to_text())
        client = told(access, f"127.0.0.1:{port}")
        with connected(client, client.bootstrap_servers[0]) as channel:
            assert channel.request(heartbeat(1)) == heartbeat_response(1)

    async def scenario() -> None:
        spoken = config.security_protocol(protocol)
        authentication = listener_authentication(
            config, protocol, SECRET.verifications(own_addresses), lambda user, mechanism: None
        )
        async with serving(
            {ApiKey.HEARTBEAT: Api(0, 4, answer)},
            admission=Admission(authentication),
            tls=listener_tls(config, protocol, spoken, SECRET),
        ) as listener:
            own_addresses.add(f"127.0.0.1:{listener.port}")
            await asyncio.to_thread(ask, SECRET, listener.port)
            if principal is SESSION:
                with pytest.raises(KafkaError):
                    await asyncio.to_thread(ask, ApplicationSecret.new(), listener.port)

    run(scenario())
    assert heard == [principal]


def test_session_that_is_given_options_goes_by_them(tmp_path: Path) -> None:
    """Somebody may want to be somebody else, on the application's cluster and all the more on another."""
    access = session_access(configured("SASL_SSL", tmp_path, **SCRAM), SECRET)
    jaas = 'x.ScramLoginModule required username="ann" password="pencil";'
    ann = told(
        access, "a:1", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas, ssl_truststore_location="/t"
    )
    assert ann.login == PasswordLogin("SCRAM-SHA-256", "ann", "pencil")
    assert isinstance(ann.tls, TlsSettings) and ann.tls.truststore.location == "/t"
    elsewhere = told(access, "a:1", bootstrap_servers="b:1")
    assert (elsewhere.login, elsewhere.tls) == (None, None)
    assert SECRET.of_sessions not in repr(told(access, "a:1"))


def test_secret_of_sessions_makes_nobody_driver_or_broker() -> None:
    """Users' code runs in sessions: what they have must not be the application's secret."""
    session = session_access(
        BrokerConfig.from_mapping({"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}), SECRET
    ).login
    assert session is not None and SECRET.of_sessions not in repr(session)
    exchange = session("a:1")
    assert exchange.name == SESSION_MECHANISM
    begin = SECRET.verifications({"a:1"})
    of_cluster, of_sessions = begin[CLUSTER_MECHANISM](), begin[SESSION_MECHANISM]()
    first = exchange.first()
    proof = exchange.respond(of_cluster.respond(first))
    assert proof is not None
    with pytest.raises(SaslError, match="wrong password"):
        of_cluster.respond(proof)
    again = session("a:1")
    proof = again.respond(of_sessions.respond(again.first()))
    assert proof is not None and again.respond(of_sessions.respond(proof)) is None
    assert of_sessions.principal == SESSION
    with pytest.raises(SaslError, match="no credentials"):
        begin[SESSION_MECHANISM]().respond(session("elsewhere:1").first())


def test_session_is_told_of_a_certificate_only_where_one_is_asked_for(tmp_path: Path) -> None:
    """It is a secret; and listeners of SASL_SSL ask for one only if that is set for them alone."""
    for alone, keys in ((False, SCRAM | CERTIFICATE), (True, SCRAM | CERTIFICATE | CERTIFICATE_ALONE)):
        access = session_access(configured("SASL_SSL", tmp_path, **keys), SECRET)
        assert bool(access.key_pem) is bool(access.certificate_pem) is alone


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_session_that_says_who_it_is_where_nobody_hears_it_is_refused(protocol: str) -> None:
    """It would be the application itself, with all its rights; of others Kafka's clients say nothing."""
    own = ApplicationAddress("127.0.0.1:9092", SessionAccess(protocol=protocol))
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";'
    said = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    with pytest.raises(DataSourceOptionError, match=rf"kafka\.sasl\.jaas\.config.*{protocol}"):
        KafkaOptions(said, own, report=lambda _: None).client()
    elsewhere = said | {"bootstrap.servers": "127.0.0.1:9093"}
    assert KafkaOptions(elsewhere, own, report=lambda _: None).client().login is None
