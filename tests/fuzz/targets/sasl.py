"""The exchanges of SASL: servers of PLAIN, SCRAM and OAUTHBEARER, SCRAM's clients, and key sets.

The first byte says which side of which mechanism is fuzzed, the parts are what the other side says, in turn.
Whatever that is, only who has computed the proof is let in, and a client trusts only who has computed his.
"""

import contextlib
import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from functools import cache
from hashlib import new, pbkdf2_hmac
from hmac import digest

from sparklog.node.acls.acl import Principal
from sparklog.node.security.oauth.signed_tokens import SignedTokens, SignedTokenSettings
from sparklog.node.security.oauth.unsecured_tokens import UnsecuredTokens
from sparklog.node.security.oauth.verification_keys import VerificationKeys
from sparklog.node.security.sasl.mechanism import SaslError
from sparklog.node.security.sasl.oauthbearer import OAuthBearerVerification, TokenError
from sparklog.node.security.sasl.plain import PlainVerification
from sparklog.node.security.sasl.scram import (
    SCRAM_ALGORITHMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramLogin,
    ScramVerification,
)
from tests.fuzz.finding import expect
from tests.fuzz.pieces import kind_of, parts
from tests.fuzz.targets import Target

USER, PASSWORD, SALT, ITERATIONS = "a,n=n", "secret of ann", b"a salt", 4096
CLIENT_NONCE, SERVER_NONCE = "clientnonce", "servernonce"
KINDS = (
    "PLAIN",
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    "login by " + SCRAM_SHA_256,
    "login by " + SCRAM_SHA_512,
    "bearer",
    "token's header and claims",
    "key set",
)
_MAX_TOKENS = 4


def target() -> Target:
    credentials = {
        name: ScramCredential.of_password(name, PASSWORD, ITERATIONS, SALT)
        for name in (SCRAM_SHA_256, SCRAM_SHA_512)
    }

    def take(data: bytes) -> None:
        kind, rest = kind_of(data, len(KINDS))
        tokens = parts(rest, _MAX_TOKENS)
        if kind == 0:
            _plain(tokens)
        elif kind < 3:
            _server(KINDS[kind], credentials[KINDS[kind]], tokens)
        elif kind < 5:
            _client(KINDS[kind].removeprefix("login by "), tokens)
        elif kind == 5:
            _bearer(tokens)
        elif kind == 6:
            _token(tokens)
        else:
            with contextlib.suppress(ValueError):
                VerificationKeys.parse(rest)

    return take


def _bearer(tokens: list[bytes]) -> None:
    exchange = OAuthBearerVerification(UnsecuredTokens().accepted)
    for token in tokens:
        try:
            exchange.respond(token)
        except SaslError:
            expect(exchange.principal is None, "who is refused has a principal")
            return
        if exchange.principal is not None:
            expect(token.startswith(b"n,") and b"auth=" in token.lower(), "without a token")
            return


def _token(sections: list[bytes]) -> None:
    """Put a token together: nobody has signed it, so that only the parser of unsecured ones takes it."""
    header, claims = [*sections, b""][:2]
    token = ".".join(urlsafe_b64encode(each).decode().rstrip("=") for each in (header, claims)) + "."
    with contextlib.suppress(TokenError):
        UnsecuredTokens().accepted(token)
    for signature in ("", "AAAA"):
        try:
            _signed().accepted(token + signature)
        except TokenError:
            continue
        expect(False, "a token that nobody has signed is accepted")


@cache
def _signed() -> SignedTokens:
    from tests.identity_provider import IdentityProvider

    return SignedTokens(SignedTokenSettings(), VerificationKeys.parse(IdentityProvider().key_set()).find)


def _plain(tokens: list[bytes]) -> None:
    exchange = PlainVerification({USER: PASSWORD})
    for token in tokens:
        try:
            exchange.respond(token)
        except SaslError:
            expect(exchange.principal is None, "who is refused has a principal")
            return
        expect(exchange.principal == Principal("User", USER), "another one is let in")
        name = USER.encode()
        expect(
            token
            in (b"\0%s\0%s" % (name, PASSWORD.encode()), b"%s\0%s\0%s" % (name, name, PASSWORD.encode())),
            "without the password",
        )
        return


def _server(mechanism: str, credential: ScramCredential, tokens: list[bytes]) -> None:
    exchange = ScramVerification(
        mechanism, lambda name: credential if name == USER else None, nonce=SERVER_NONCE
    )
    said: list[str] = []
    for token in tokens:
        try:
            answer = exchange.respond(token)
        except SaslError:
            expect(exchange.principal is None or len(said) > 3, "who is refused has a principal")
            if exchange.principal is None:
                return
            continue
        said += [token.decode(), answer.decode()]
        if exchange.principal is not None:
            expect(len(said) == 4 and exchange.principal == Principal("User", USER), "another one is let in")
            _check_proof(mechanism, said)
            return


def _check_proof(mechanism: str, said: list[str]) -> None:
    """Compute anew what a client who knows the password says last, and the server's answer."""
    client_first, server_first, client_final, server_final = said
    algorithm = SCRAM_ALGORITHMS[mechanism]
    salted = pbkdf2_hmac(algorithm, PASSWORD.encode(), SALT, ITERATIONS)
    without_proof, _, proof = client_final.rpartition(",p=")
    bare = client_first[client_first.index("n=", 2) if not client_first.startswith("n,,") else 3 :]
    messages = f"{bare},{server_first},{without_proof}".encode()
    client_key = digest(salted, b"Client Key", algorithm)
    signature = digest(new(algorithm, client_key).digest(), messages, algorithm)
    expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    expect(b64decode(proof) == expected, "a proof that is none lets somebody in")
    server_key = digest(salted, b"Server Key", algorithm)
    expect(
        server_final == "v=" + b64encode(digest(server_key, messages, algorithm)).decode(),
        "it proves nothing",
    )


def _client(mechanism: str, tokens: list[bytes]) -> None:
    login = ScramLogin(mechanism, USER, PASSWORD, nonce=CLIENT_NONCE, max_iterations=ITERATIONS)
    said = [login.first().decode()]
    for token in tokens[:2]:
        try:
            answer = login.respond(token)
        except SaslError:
            return
        said.append(token.decode("utf-8", "replace"))
        if answer is None:
            _check_server(mechanism, said)
            return
        said.append(answer.decode("utf-8", "replace"))


def _check_server(mechanism: str, said: list[str]) -> None:
    client_first, server_first, client_final, server_final = said
    algorithm = SCRAM_ALGORITHMS[mechanism]
    salt = re.search(r",s=([^,]+)", server_first)
    expect(salt is not None, "a server without a salt is trusted")
    assert salt is not None
    salted = pbkdf2_hmac(algorithm, PASSWORD.encode(), b64decode(salt[1]), ITERATIONS)
    messages = f"{client_first[3:]},{server_first},{client_final.rpartition(',p=')[0]}".encode()
    expected = digest(digest(salted, b"Server Key", algorithm), messages, algorithm)
    expect(server_final == "v=" + b64encode(expected).decode(), "a server without the password is trusted")
