"""The `kafka.sasl.*` options: the connector's, and never shown."""

import pickle

import pytest

from sparklog.node.security.oauth.client_tokens import BearerLogin, ClientCredentials, OwnTokens, TokenFile
from sparklog.node.security.oauth.http import provider_tls
from sparklog.node.security.sasl.password_login import PasswordLogin
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.kafka_options import KafkaOptions

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
GIVEN = {
    "bootstrap.servers": "a:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": f'{SCRAM} required username="ann" password="s3cret";',
}


def client(**changes: str | None) -> object:
    given = {**GIVEN, **{name.replace("_", "."): value for name, value in changes.items()}}
    settings = {name: value for name, value in given.items() if value is not None}
    return KafkaOptions(settings, None, report=lambda _: None).client()


def test_sasl_options_mean_what_they_mean_to_kafkas_clients_and_show_no_secret() -> None:
    """They travel to the tasks with what is pickled, and are in no text of it."""
    config = pickle.loads(pickle.dumps(client()))
    assert config.login == PasswordLogin("SCRAM-SHA-256", "ann", "s3cret")
    assert config.login("broker:9092").name == "SCRAM-SHA-256"
    assert "s3cret" not in repr(config) and "s3cret" not in repr(config.login)


def test_sasl_options_without_the_protocol_log_nobody_in() -> None:
    """As with Kafka's clients: it is security.protocol that says it."""
    assert client(security_protocol=None).login is None  # type: ignore[attr-defined]
    assert client(security_protocol="sasl_ssl").tls is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl_mechanism": None}, "is 'GSSAPI'; it must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"sasl_mechanism": "PLAIN"}, "must name the login module PlainLoginModule, which PLAIN needs"),
        ({"sasl_jaas_config": None}, "must be specified: org.apache.kafka"),
        ({"sasl_jaas_config": f'{SCRAM} required username="ann" password="s3cret"'}, "with a semicolon"),
        ({"sasl_jaas_config": f'{SCRAM} required password="s3cret";'}, "has no username"),
    ],
)
def test_sasl_options_that_are_wrong_are_refused_without_showing_them(
    changes: dict[str, str | None], message: str
) -> None:
    """The message ends up in notebooks and logs."""
    with pytest.raises(DataSourceOptionError) as refusal:
        client(**changes)
    assert message in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
BEARER: dict[str, str | None] = {"sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": f"{OAUTH} required;"}
ENDPOINT = "sasl_oauthbearer_token_endpoint_url"
CREDENTIALS = {
    "sasl_oauthbearer_client_credentials_client_id": "us",
    "sasl_oauthbearer_client_credentials_client_secret": "s3cret",
}


@pytest.mark.parametrize(
    ("changes", "login"),
    [
        ({ENDPOINT: "file:///run/a%20token"}, BearerLogin(TokenFile("/run/a token"))),
        ({ENDPOINT: "file:///token", "sasl_jaas_config": None}, BearerLogin(TokenFile("/token"))),
        (
            {ENDPOINT: "https://id/token", **CREDENTIALS, "sasl_oauthbearer_scope": "a"},
            BearerLogin(ClientCredentials("https://id/token", "us", "s3cret", "a", tls=provider_tls({}))),
        ),
        (
            {
                ENDPOINT: "http://id/token",
                "sasl_jaas_config": f'{OAUTH} required clientId="us" clientSecret="s3cret" extension_a="b";',
            },
            BearerLogin(ClientCredentials("http://id/token", "us", "s3cret"), (("a", "b"),)),
        ),
        (
            {
                "sasl_jaas_config": f"{OAUTH} required unsecuredLoginStringClaim_sub=ann "
                'unsecuredLoginNumberClaim_n=7 unsecuredLoginListClaim_scope=",a,b" '
                "unsecuredLoginExtension_a=b;"
            },
            BearerLogin(OwnTokens((("sub", "ann"), ("n", 7.0), ("scope", ("a", "b")))), (("a", "b"),)),
        ),
    ],
)
def test_oauth_options_say_where_tokens_come_from(changes: dict[str, str | None], login: BearerLogin) -> None:
    """As with Kafka's clients; the secret is in no text of it."""
    config = pickle.loads(pickle.dumps(client(**BEARER | changes)))
    assert config.login == login
    assert "s3cret" not in repr(config) and "s3cret" not in repr(config.login)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "'kafka.sasl.oauthbearer.token.endpoint.url' must be specified"),
        ({ENDPOINT: "ftp://id"}, "must be a URL of https, http or file"),
        ({ENDPOINT: "https://id"}, "client.credentials.client.id' must be specified"),
        ({ENDPOINT: "file:///t", "sasl_login_callback_handler_class": "x.Mine"}, "names an unknown class"),
        (
            {"sasl_jaas_config": f"{OAUTH} required extension_1=s3cret;", ENDPOINT: "file:///t"},
            "extension '1'",
        ),
        ({"sasl_jaas_config": f"{OAUTH} required unsecuredLoginNumberClaim_a=s3cret;"}, "is not a number"),
        ({"sasl_kerberos_service_name": "kafka"}, "GSSAPI and delegation tokens are not supported"),
        (
            {"sasl_jaas_config": f'{SCRAM} required username="ann" password="s3cret";'},
            "OAuthBearerLoginModule",
        ),
    ],
)
def test_oauth_options_that_are_wrong_are_refused_without_showing_them(
    changes: dict[str, str | None], message: str
) -> None:
    """What is not here is said, too."""
    with pytest.raises(DataSourceOptionError) as refusal:
        client(**BEARER | changes)
    assert message in str(refusal.value)
    assert "s3cret" not in str(refusal.value)
