"""Listeners whose clients come with tokens: what has to be set, and what then happens on a real listener."""

import asyncio
from pathlib import Path

import pytest

from sparklog.driver.spark.open_network import check_listeners
from sparklog.hosting import OpenNetworkError
from sparklog.node.acls.acl import Principal
from sparklog.node.calling import blocking
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.config import BrokerConfig
from sparklog.node.config.definition import ConfigError
from sparklog.node.config.keys.sasl_keys import UNSECURED_TOKENS_CLASS as UNSECURED
from sparklog.node.config.listener_security.listener_sasl import listener_authentication
from sparklog.node.security.oauth.client_tokens import BearerLogin, OwnTokens, TokenFile
from sparklog.node.security.sasl.mechanism import ClientMechanism, Login
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.authentication import Authentication
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.application_secret import SECRET
from tests.identity_provider import IdentityProvider
from tests.unit.sparklog.node.serving.serving import Heard, heartbeat, run, serving

PROVIDER = IdentityProvider()


def config(**of_oauthbearer: str) -> BrokerConfig:
    own = {
        f"listener.name.out.oauthbearer.{name.replace('_', '.')}": value
        for name, value in of_oauthbearer.items()
    }
    return BrokerConfig.from_mapping(
        {
            "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
            "listener.name.out.sasl.enabled.mechanisms": "OAUTHBEARER",
            "connection.failed.authentication.delay.ms": "1",
            **own,
        }
    )


def authentication(of: BrokerConfig) -> Authentication:
    return listener_authentication(of, "OUT", SECRET.verifications(set()), lambda user, mechanism: None)


def said(heard: Heard, of: BrokerConfig, *logins: Login) -> None:
    """Have a client say something with each login, at a listener of this configuration."""

    def say(port: int) -> None:
        for login in logins:
            with BlockingChannel("127.0.0.1", port, "test", login=login) as channel:
                channel.request(heartbeat())

    async def scenario() -> None:
        async with serving(heard.apis, admission=Admission(authentication(of))) as listener:
            await asyncio.to_thread(say, listener.port)

    run(scenario())


def test_client_with_a_token_of_the_provider_is_its_subject(tmp_path: Path) -> None:
    """By keys in a file, and by keys that the provider tells; the first client waits until they are there."""
    heard, token = Heard(), tmp_path / "token"
    token.write_text(PROVIDER.token(aud="kafka"))
    (tmp_path / "keys").write_bytes(PROVIDER.key_set())
    login = BearerLogin(TokenFile(str(token)))
    with PROVIDER.serving() as address:
        for url in (f"file://{tmp_path}/keys", f"{address}/keys"):
            of = config(
                sasl_oauthbearer_jwks_endpoint_url=url, sasl_oauthbearer_expected_audience="other,kafka"
            )
            said(heard, of, login, login)
    assert heard.principals == [Principal("User", "ann")] * 4
    assert [path for path, _ in PROVIDER.asked] == ["/keys"]


def test_client_with_another_token_is_told_so(tmp_path: Path) -> None:
    """As Kafka tells it; nobody is heard."""
    heard, token = Heard(), tmp_path / "token"
    (tmp_path / "keys").write_bytes(PROVIDER.key_set())
    of = config(sasl_oauthbearer_jwks_endpoint_url=f"file://{tmp_path}/keys")
    for other in (IdentityProvider("stranger").token(), PROVIDER.token(exp=1)):
        token.write_text(other)
        with pytest.raises(KafkaError, match=r'{"status":"invalid_token"}') as refused:
            said(heard, of, BearerLogin(TokenFile(str(token))))
        assert refused.value.error_code is ErrorCode.sasl_authentication_failed
    with pytest.raises(KafkaError, match="invalid_token"):
        said(heard, of, BearerLogin(OwnTokens((("sub", "ann"),))))
    assert heard.principals == []


def test_unsecured_token_is_taken_only_where_kafkas_class_is_named() -> None:
    """Anybody may be anybody by it; Kafka takes it wherever nothing is said."""
    heard, login = Heard(), BearerLogin(OwnTokens((("sub", "bob"),)))
    of = config(sasl_server_callback_handler_class=UNSECURED)
    assert of.of_listener("OUT", "OAUTHBEARER").takes_unsecured_tokens
    assert not of.of_listener("IN", "OAUTHBEARER").takes_unsecured_tokens
    said(heard, of, login)
    assert heard.principals == [Principal("User", "bob")]


def test_session_ends_with_the_token_and_is_renewed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-368: whoever goes on says again who he is, by a newer token, before a request goes out."""
    monkeypatch.setattr(blocking, "_RENEWED_AT", 0.0)
    heard, addresses, of = Heard(), list[str](), config(sasl_server_callback_handler_class=UNSECURED)

    def login(address: str) -> ClientMechanism:
        addresses.append(address)
        return BearerLogin(OwnTokens((("sub", "bob"),)))(address)

    said(heard, of, login)
    assert heard.principals == [Principal("User", "bob")]
    assert len(addresses) == 2 and len(set(addresses)) == 1


@pytest.mark.parametrize(
    ("given", "said_of_it"),
    [
        ({}, "oauthbearer.sasl.oauthbearer.jwks.endpoint.url: OAUTHBEARER needs the keys"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "ldap://x"}, "a URL of https, http or file"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///none"}, "No such file"),
        ({"sasl_oauthbearer_jwks_endpoint_url": f"file://{__file__}"}, "it is not a key set"),
        ({"sasl_server_callback_handler_class": "com.example.Handler"}, "one of org.apache.kafka"),
        ({"ssl_client_auth": "none"}, "the same for all mechanisms"),
        (
            {"sasl_server_callback_handler_class": UNSECURED, "sasl_jaas_config": "OAuthBearerLoginModule"},
            "oauthbearer.sasl.jaas.config: expected",
        ),
        (
            {
                "sasl_server_callback_handler_class": UNSECURED,
                "sasl_jaas_config": "O required unsecuredValidatorAllowableClockSkewMs=x;",
            },
            "unsecuredValidatorAllowableClockSkewMs is not a number",
        ),
    ],
)
def test_listener_that_can_not_tell_tokens_apart_does_not_start(
    given: dict[str, str], said_of_it: str
) -> None:
    """By the name of the key that is to be set."""
    with pytest.raises(ConfigError, match=said_of_it):
        authentication(config(**given))


def test_key_of_a_mechanism_holds_for_it_alone() -> None:
    """Two mechanisms of one listener have their own limits and their own login modules."""
    of = BrokerConfig.from_mapping(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "connections.max.reauth.ms": "1",
            "listener.name.sasl_plaintext.connections.max.reauth.ms": "2",
            "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": "3",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": "a required b=c;",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "d required e=f;",
        }
    )
    lengths = [
        of.of_listener("SASL_PLAINTEXT", each).connections_max_reauth_ms
        for each in ("", "PLAIN", "SCRAM-SHA-256")
    ]
    assert lengths == [2, 2, 3]
    users = [of.of_listener("SASL_PLAINTEXT", each).sasl_jaas_config for each in ("PLAIN", "OAUTHBEARER", "")]
    assert [user and user.value for user in users] == ["a required b=c;", "d required e=f;", None]
    with pytest.raises(ConfigError, match=r"listener.name.sasl_plaintext.plain.connections.max.reauth.ms"):
        BrokerConfig.from_mapping(
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "x",
            }
        )


def test_unsecured_tokens_beyond_loopback_are_refused_unless_the_network_is_trusted() -> None:
    """They ask nobody who he is, as PLAINTEXT does not."""
    given = {
        "listeners": "SASL_PLAINTEXT://0.0.0.0:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.server.callback.handler.class": UNSECURED,
        "controller.quorum.bootstrap.servers": "127.0.0.1:0",
    }
    with pytest.raises(OpenNetworkError, match="takes unsecured tokens"):
        check_listeners(BrokerConfig.from_mapping(given))
    check_listeners(BrokerConfig.from_mapping({**given, "sparklog.trusted.network": "true"}))
    check_listeners(BrokerConfig.from_mapping({**given, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}))
