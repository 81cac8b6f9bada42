"""The application's secret."""

import pickle

import pytest

from sparklog.acls.acl import Principal
from sparklog.security.inside import INSIDE, INSIDE_MECHANISM, ApplicationSecret
from sparklog.security.sasl.mechanism import ClientMechanism, SaslError, ServerMechanism


def converse(login: ClientMechanism, server: ServerMechanism) -> list[bytes]:
    """Have the two talk until the client is satisfied; return all that was said."""
    said: list[bytes] = []
    token: bytes | None = login.first()
    while token is not None:
        said += [token, server.respond(token)]
        token = login.respond(said[-1])
    return said


def test_both_sides_with_the_secret_know_each_other() -> None:
    """Also when one has it from a task's closure. Who is inside is the one object that says so."""
    secret = ApplicationSecret.new()
    server = pickle.loads(pickle.dumps(secret)).verification()
    login = secret.login()
    said = converse(login, server)
    assert login.name == INSIDE_MECHANISM
    assert server.principal is INSIDE
    assert all(secret._value.encode() not in message for message in said)


def test_another_application_is_a_stranger() -> None:
    """A driver that starts again over the same directories has another secret than brokers left behind."""
    server = ApplicationSecret.new().verification()
    with pytest.raises(SaslError):
        converse(ApplicationSecret.new().login(), server)
    assert server.principal is None


def test_secret_is_in_no_text() -> None:
    """What is printed of assignments, brokers and errors ends up in logs that others read."""
    secret = ApplicationSecret.new()
    for text in (repr(secret), str(secret), f"{secret!r}", repr(secret.login()), repr(secret.verification())):
        assert secret._value not in text


def test_no_user_is_inside() -> None:
    """Whatever he is called."""
    assert Principal("User", INSIDE.name) != INSIDE


def test_who_took_a_brokers_port_has_nothing_computed() -> None:
    """Whoever is there says how many iterations, and 2^24 of them stop an event loop for seconds."""
    login = ApplicationSecret.new().login()
    nonce = login.first().decode().rpartition("r=")[2]
    with pytest.raises(SaslError, match="8192 iterations, of 4096 to 4096"):
        login.respond(f"r={nonce}more,s=c2FsdA==,i=8192".encode())
