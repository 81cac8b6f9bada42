"""The exchange of OAUTHBEARER, token by token."""

import itertools

import pytest

from sparklog.node.acls.acl import Principal
from sparklog.node.security.sasl.mechanism import SaslError
from sparklog.node.security.sasl.oauthbearer import (
    MAX_TOKEN_BYTES,
    BearerToken,
    OAuthBearerLogin,
    OAuthBearerVerification,
    TokenError,
)


def accepted(token: str) -> BearerToken:
    if token != "good":
        raise TokenError("it is not good")
    return BearerToken("ann", 5)


def test_client_with_a_good_token_is_who_it_says_until_it_expires() -> None:
    """Both halves, with extensions, which are well-formed and otherwise nobody's business."""
    server, client = OAuthBearerVerification(accepted), OAuthBearerLogin("good", {"traceId": "7 8"})
    assert client.first() == b"n,,\x01auth=Bearer good\x01traceId=7 8\x01\x01"
    assert client.respond(server.respond(client.first())) is None
    assert (server.principal, server.expires_ms) == (Principal("User", "ann"), 5)


def test_client_with_another_token_is_told_and_refused() -> None:
    """RFC 7628: the server says what is wrong, the client takes note, and only then it is refused."""
    server, client = OAuthBearerVerification(accepted), OAuthBearerLogin("bad", {})
    client_message = server.respond(client.first())
    assert client_message == b'{"status":"invalid_token"}' and server.principal is None
    last = client.respond(client_message)
    assert last == b"\x01"
    for again in (last, client.first(), b"n,,\x01auth=Bearer good\x01\x01"):
        with pytest.raises(SaslError, match="it is not good") as refused:
            server.respond(again)
        assert refused.value.client_message == client_message.decode() and server.principal is None
    with pytest.raises(SaslError, match="invalid_token"):
        client.respond(b"")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,auth=Bearer good\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,a=a=b,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer g*od\x01\x01",
        b"n,,\x01host\x01auth=Bearer good\x01\x01",
        b"n,,\x01n1=x\x01auth=Bearer good\x01\x01",
        b"n,,\x01name=\xc3\xa4\x01auth=Bearer good\x01\x01",
        b"n,,\x01name=\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * (MAX_TOKEN_BYTES + 1) + b"\x01\x01",
    ],
)
def test_malformed_first_message_is_refused(message: bytes) -> None:
    """In the words for any wrong credentials."""
    server = OAuthBearerVerification(accepted)
    with pytest.raises(SaslError) as refused:
        server.respond(message)
    assert refused.value.client_message is None and server.principal is None


@pytest.mark.parametrize(
    ("extensions", "said"),
    [
        (["a=b"] * 101, "with 101 extensions, of at most 100"),
        (["a=" + "b" * (8 << 10)], "a message of 40981 bytes, of at most 40960"),
    ],
)
def test_first_message_that_is_longer_than_any_is_refused_before_it_is_looked_at(
    extensions: list[str], said: str
) -> None:
    """The loop would take a third of a second to look at half a mebibyte, of anybody's."""
    server, token = OAuthBearerVerification(accepted), "a" * MAX_TOKEN_BYTES
    pairs = "\x01".join([f"auth=Bearer {token}", *extensions])
    with pytest.raises(SaslError, match=said):
        server.respond(f"n,,\x01{pairs}\x01\x01".encode())


def test_longest_token_is_taken_beside_as_many_extensions_as_there_may_be() -> None:
    """The bounds leave room for whoever needs it."""
    token = "a" * MAX_TOKEN_BYTES
    names = ["".join(letters) for letters in itertools.islice(itertools.product("abcdefgh", repeat=3), 100)]
    client = OAuthBearerLogin(token, dict.fromkeys(names, "value" * 10))
    server = OAuthBearerVerification(lambda shown: BearerToken("ann" if shown == token else "", 5))
    assert client.respond(server.respond(client.first())) is None
    assert server.principal == Principal("User", "ann")


def test_client_that_asks_to_be_somebody_else_is_refused() -> None:
    """Who he is stands in the token; he may only say the same."""
    OAuthBearerVerification(accepted).respond(b"n,a=ann,\x01auth=bearer good\x01\x01")
    with pytest.raises(SaslError) as refused:
        OAuthBearerVerification(accepted).respond(b"n,a=bob=2C,\x01auth=Bearer good\x01\x01")
    assert refused.value.client_message == (
        "Authentication failed: Client requested an authorization id (bob,) that is different from the "
        "token's principal name (ann)"
    )
