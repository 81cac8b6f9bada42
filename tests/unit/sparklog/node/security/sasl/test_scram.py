"""SCRAM: the RFC's own conversations, and what must not be let in."""

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.node.acls.acl import Principal
from sparklog.node.security.sasl.mechanism import SaslError
from sparklog.node.security.sasl.scram import (
    MIN_ITERATIONS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramLogin,
    ScramVerification,
)

ANN = ScramCredential.of_password(SCRAM_SHA_256, "pencil", MIN_ITERATIONS, b"salt")


def verification(mechanism: str = SCRAM_SHA_256, **users: ScramCredential) -> ScramVerification:
    return ScramVerification(mechanism, (users or {"ann": ANN}).get)


def converse(login: ScramLogin, server: ScramVerification) -> list[bytes]:
    """Have the two talk until the client is satisfied; return what it has sent."""
    sent = [login.first()]
    while True:
        token = login.respond(server.respond(sent[-1]))
        if token is None:
            return sent
        sent.append(token)


def test_exchange_of_rfc_7677_is_made_byte_for_byte() -> None:
    """What both sides of ours agree on, only others can show to be SCRAM."""
    nonce, salt = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.of_password(SCRAM_SHA_256, "pencil", 4096, salt)
    server = ScramVerification(SCRAM_SHA_256, {"user": credential}.get, nonce=nonce)
    login = ScramLogin(SCRAM_SHA_256, "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert login.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = server.respond(login.first())
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = login.respond(first)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.principal is None
    last = server.respond(final)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert login.respond(last) is None
    assert server.principal == Principal("User", "user")


@given(st.text(min_size=1).filter(lambda name: "\0" not in name), st.text())
def test_any_name_and_password_are_those_that_were_kept(name: str, password: str) -> None:
    """Names with commas and equals signs, and in any script, are whole names, and their own."""
    try:
        name.encode(), password.encode()
    except UnicodeEncodeError:
        return
    credential = ScramCredential.of_password(SCRAM_SHA_512, password, MIN_ITERATIONS)
    server = verification(SCRAM_SHA_512, **{name: credential})
    converse(ScramLogin(SCRAM_SHA_512, name, password), server)
    assert server.principal == Principal("User", name)


@pytest.mark.parametrize(
    ("login", "message"),
    [
        (ScramLogin(SCRAM_SHA_256, "ann", "pen"), "wrong password"),
        (ScramLogin(SCRAM_SHA_256, "bob", "pencil"), "no credentials of user 'bob'"),
        (ScramLogin(SCRAM_SHA_512, "ann", "pencil"), "a proof of another length"),
    ],
)
def test_who_does_not_know_the_password_is_refused(login: ScramLogin, message: str) -> None:
    """And who is refused is nobody."""
    server = verification()
    with pytest.raises(SaslError, match=message) as refusal:
        converse(login, server)
    assert refusal.value.client_message is None
    assert server.principal is None


def test_last_message_of_another_exchange_is_refused() -> None:
    """CVE-2024-56128: what was overheard of one exchange must not open another, however its nonce ends."""
    overheard = converse(ScramLogin(SCRAM_SHA_256, "ann", "pencil", nonce="x"), verification())
    again = verification()
    first = again.respond(overheard[0])
    with pytest.raises(SaslError, match="of another exchange"):
        again.respond(overheard[1])
    nonce = first.split(b",")[0].removeprefix(b"r=")
    for forged in (nonce[1:], b"y" + nonce, nonce + b"y", b"x"):
        server = ScramVerification(SCRAM_SHA_256, {"ann": ANN}.get, nonce=nonce.decode()[1:])
        server.respond(overheard[0])
        message = overheard[1].replace(overheard[1].split(b",")[1], b"r=" + forged)
        with pytest.raises(SaslError, match="of another exchange"):
            server.respond(message)
        assert server.principal is None


def test_exchange_is_over_after_its_end_and_after_a_failure() -> None:
    """One guess an exchange: whoever could go on guessing within one would not have to wait in between."""
    done, failed = verification(), verification()
    sent = converse(ScramLogin(SCRAM_SHA_256, "ann", "pencil"), done)
    with pytest.raises(SaslError, match="over"):
        done.respond(sent[-1])
    login = ScramLogin(SCRAM_SHA_256, "ann", "pencil")
    final = login.respond(failed.respond(login.first())) or b""
    with pytest.raises(SaslError, match="wrong password"):
        failed.respond(final[:-8] + b"AAAAAAA=")
    with pytest.raises(SaslError, match="over"):
        failed.respond(final)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff\xfe",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=ann,r=",
        b"n,,n=ann",
        b"n,,m=must,n=ann,r=x",
        b"p=tls-unique,,n=ann,r=x",
        b"n,,n=a=ZZn,r=x",
        b"n,,n=ann,r=\x00",
        b"c=biws,r=x,p=AAAA",
    ],
)
def test_first_message_that_is_none_is_refused(token: bytes) -> None:
    """Bytes of strangers."""
    with pytest.raises(SaslError):
        verification().respond(token)


def test_messages_of_more_than_4_kib_are_refused() -> None:
    """Of one that is taken the nonce is kept, and sent back, before anybody has shown that he is a user."""
    longest = b"n,,n=ann,r=" + b"x" * (4096 - 11)
    server = verification()
    answer = server.respond(longest)
    assert answer.startswith(b"r=" + longest[11:])
    with pytest.raises(SaslError, match="a message of 4097 bytes, of at most 4096"):
        verification().respond(longest + b"x")
    with pytest.raises(SaslError, match="a message of 4097 bytes, of at most 4096"):
        server.respond(b"c=biws,r=" + b"x" * 4088)
    with pytest.raises(SaslError, match="over"):
        server.respond(b"")


def test_other_authorization_id_than_the_user_is_refused_in_kafkas_words() -> None:
    """It would be another's name with one's own password."""
    assert verification().respond(b"n,a=ann,n=ann,r=x")
    with pytest.raises(SaslError) as refusal:
        verification().respond(b"n,a=bob,n=ann,r=x")
    assert refusal.value.client_message == (
        "Authentication failed: Client requested an authorization id that is different from username"
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"r=other,s=c2FsdA==,i=4096",
        b"r=x,s=c2FsdA==,i=4096",
        b"r=xy,s=c2FsdA==,i=4095",
        b"r=xy,s=c2FsdA==,i=999999999",
        b"r=xy,s=!,i=4096",
        b"e=unknown-user",
        b"\xff",
    ],
)
def test_client_takes_no_first_message_that_is_not_its_servers(answer: bytes) -> None:
    """A server that chose the nonce, or few iterations, could find the password out."""
    login = ScramLogin(SCRAM_SHA_256, "ann", "pencil", nonce="x")
    login.first()
    with pytest.raises(SaslError):
        login.respond(answer)


def test_client_takes_no_server_that_does_not_know_the_password() -> None:
    """Whoever took the server's place would be told everything."""
    login = ScramLogin(SCRAM_SHA_256, "ann", "pencil", nonce="x")
    login.first()
    login.respond(b"r=xy,s=c2FsdA==,i=4096")
    with pytest.raises(SaslError, match="does not know"):
        login.respond(b"v=" + b64encode(bytes(32)))


def test_credential_shows_no_key() -> None:
    """It stands in metadata images, which are logged and shown in tests."""
    assert repr(ANN) == "ScramCredential(iterations=4096)"


def test_of_what_a_stranger_calls_himself_the_beginning_is_logged() -> None:
    """A name may be half a megabyte, and everybody may send one."""
    name = b"x" * 100_000
    for token in (b"n,,n=" + name + b",r=x", b"n,a=" + name + b",n=ann,r=x"):
        with pytest.raises(SaslError) as refusal:
            verification().respond(token)
        assert len(str(refusal.value)) < 200
