"""The application's secret."""

import pickle

import pytest

from sparklog.node.acls.acl import Principal
from sparklog.node.security.application_secret import CLUSTER_MECHANISM, CLUSTER_PRINCIPAL, ApplicationSecret
from sparklog.node.security.sasl.mechanism import ClientMechanism, SaslError, ServerMechanism


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
    server = pickle.loads(pickle.dumps(secret)).verification({"broker:9092"})()
    login = secret.login("broker:9092")
    said = converse(login, server)
    assert login.name == CLUSTER_MECHANISM
    assert server.principal is CLUSTER_PRINCIPAL
    assert all(secret._value.encode() not in message for message in said)


def test_another_application_is_a_stranger() -> None:
    """A driver that starts again over the same directories has another secret than brokers left behind."""
    server = ApplicationSecret.new().verification({"broker:9092"})()
    with pytest.raises(SaslError):
        converse(ApplicationSecret.new().login("broker:9092"), server)
    assert server.principal is None


def test_secret_is_in_no_text() -> None:
    """What is printed of assignments, brokers and errors ends up in logs that others read."""
    secret = ApplicationSecret.new()
    login, server = secret.login("broker:9092"), secret.verification({"broker:9092"})()
    for text in (repr(secret), str(secret), f"{secret!r}", repr(login), repr(server)):
        assert secret._value not in text


def test_no_user_is_inside() -> None:
    """Whatever he is called."""
    assert Principal("User", CLUSTER_PRINCIPAL.name) != CLUSTER_PRINCIPAL


def test_who_took_a_brokers_port_has_nothing_computed() -> None:
    """Whoever is there says how many iterations, and 2^24 of them stop an event loop for seconds."""
    login = ApplicationSecret.new().login("broker:9092")
    nonce = login.first().decode().rpartition("r=")[2]
    with pytest.raises(SaslError, match="8192 iterations, of 4096 to 4096"):
        login.respond(f"r={nonce}more,s=c2FsdA==,i=8192".encode())


def test_what_was_said_to_another_address_says_nothing_here() -> None:
    """Who took a dead broker's port could pass it on to one that lives, and be taken for who said it."""
    secret = ApplicationSecret.new()
    own_addresses: set[str] = set()
    begin = secret.verification(own_addresses)
    for address in ("broker:9092", "broker:9093"):
        with pytest.raises(SaslError, match=f"no credentials of user '{address}'"):
            converse(secret.login(address), begin())
    own_addresses.add("broker:9093")
    with pytest.raises(SaslError, match="no credentials of user 'broker:9092'"):
        converse(secret.login("broker:9092"), begin())
    server = begin()
    said = converse(secret.login("broker:9093"), server)
    assert server.principal is CLUSTER_PRINCIPAL
    # Nor is it of use to say that it was meant for here.
    server, login = begin(), secret.login("broker:9092")
    challenge = server.respond(login.first().replace(b":9092", b":9093"))
    with pytest.raises(SaslError, match="wrong password"):
        server.respond(login.respond(challenge) or b"")
    assert said and server.principal is None
