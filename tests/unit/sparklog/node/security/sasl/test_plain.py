"""PLAIN, and the users and passwords that stand in a JAAS configuration."""

import pytest

from sparklog.node.acls.acl import Principal
from sparklog.node.security.sasl.jaas import JaasError, login_module
from sparklog.node.security.sasl.mechanism import SaslError
from sparklog.node.security.sasl.plain import PlainLogin, PlainVerification

USERS = {"ann": "s3cret"}


def test_right_password_is_its_users() -> None:
    """Kafka's configuration for it, and its answer: nothing more is to be said."""
    server, login = PlainVerification(USERS), PlainLogin("ann", "s3cret")
    assert server.respond(login.first()) == b""
    assert login.respond(b"") is None
    assert server.principal == Principal("User", "ann")


@pytest.mark.parametrize(
    ("token", "client_message"),
    [
        (b"\0ann\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0eve\0s3cret", "Authentication failed: Invalid username or password"),
        (b"\0eve\0", "Authentication failed: password not specified"),
        (b"\0\0s3cret", "Authentication failed: username not specified"),
        (b"ann", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0" * 9, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"eve\0ann\0s3cret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_anybody_else_is_refused_in_kafkas_words(token: bytes, client_message: str) -> None:
    """They do not tell whether there is such a user, and no text shows a password."""
    server = PlainVerification(USERS)
    with pytest.raises(SaslError) as refusal:
        server.respond(token)
    assert refusal.value.client_message == client_message
    assert server.principal is None
    assert "s3cret" not in str(refusal.value) and "wrong" not in str(refusal.value)


def test_name_of_a_stranger_is_logged_by_its_beginning() -> None:
    """A frame before authentication may have half a megabyte, and each refusal a line."""
    with pytest.raises(SaslError) as refusal:
        PlainVerification(USERS).respond(b"\0" + b"x" * 400_000 + b"\0y")
    assert len(str(refusal.value)) < 200


def test_jaas_configuration_is_read_as_java_reads_it() -> None:
    """Quotes of both kinds, escapes, comments, and words without quotes."""
    module = login_module(
        """
        // who may come
        org.apache.kafka.common.security.plain.PlainLoginModule REQUIRED
           user_ann="a \\"quoted\\" one; \\\\ and = signs" /* and */ user_bob='b\\tc'
           serviceName=kafka ;
        """
    )
    assert module.name == "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert module.options == {
        "user_ann": 'a "quoted" one; \\ and = signs',
        "user_bob": "b\tc",
        "serviceName": "kafka",
    }
    assert "quoted" not in repr(module)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Module",
        "Module required",
        'Module required user="s3cret"',
        'Module maybe user="s3cret";',
        'Module required user "s3cret";',
        "Module required user=;",
        'Module required ="s3cret";',
        'Module required user="s3cret;',
        'Module required user="s3cret"; Other required;',
        '"Module" required;',
    ],
)
def test_jaas_configuration_that_is_none_is_refused_without_showing_it(text: str) -> None:
    """It has passwords."""
    with pytest.raises(JaasError) as refusal:
        login_module(text)
    assert "s3cret" not in str(refusal.value)
