"""Which tokens are taken: those that the provider has signed, for us, and for now; and why others are not."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sparklog.node.security.oauth.signed_tokens import SignedTokens, SignedTokenSettings
from sparklog.node.security.oauth.verification_keys import VerificationKeys
from sparklog.node.security.sasl.oauthbearer import TokenError
from tests.identity_provider import ISSUER, IdentityProvider

PROVIDER = IdentityProvider()


def taken(provider: IdentityProvider = PROVIDER, **settings: Any) -> SignedTokens:
    keys = VerificationKeys.parse(provider.key_set())
    return SignedTokens(SignedTokenSettings(**settings), keys.find)


def encoded(section: Any) -> str:
    text = section if isinstance(section, bytes) else json.dumps(section).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "EdDSA"])
def test_token_that_the_provider_has_signed_says_who_and_until_when(algorithm: str) -> None:
    """By each kind of key that providers have."""
    provider = IdentityProvider(f"key-{algorithm[0]}", algorithm)
    expires_s = int(time.time()) + 100
    token = taken(provider).accepted(provider.token(sub=" ann ", exp=expires_s))
    assert (token.principal_name, token.expires_ms) == ("ann", expires_s * 1000)


@pytest.mark.parametrize(
    ("claims", "settings", "reason"),
    [
        ({"exp": 1}, {}, "ExpiredSignature"),
        ({"exp": None}, {}, "exp"),
        ({"iat": None}, {}, "iat"),
        ({"exp": "soon"}, {}, "exp"),
        ({"exp": True}, {}, "Expired|not a time"),
        ({"exp": 1e300}, {}, "not a time"),
        ({"iat": 2**33}, {}, "before it was issued"),
        ({"nbf": 2**33}, {}, "Immature"),
        ({"sub": None}, {}, "sub"),
        ({"sub": " "}, {}, "sub"),
        ({"sub": 7}, {}, "sub"),
        ({"scope": ["a", "a"]}, {}, "twice"),
        ({"scope": ["a", 1]}, {}, "scope"),
        ({}, {"expected_audience": ("kafka",)}, "aud"),
        ({"aud": "other"}, {"expected_audience": ("kafka", "sparklog")}, "Audience"),
        ({"aud": "other"}, {}, "Audience"),
        ({}, {"expected_issuer": ISSUER}, "iss"),
        ({"iss": f"{ISSUER}/"}, {"expected_issuer": ISSUER}, "Issuer"),
        ({"iss": ISSUER[:-1]}, {"expected_issuer": ISSUER}, "Issuer"),
    ],
)
def test_token_with_other_claims_is_refused(
    claims: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    """What is signed is not yet good: it has to be for this cluster, by its provider, and now."""
    with pytest.raises(TokenError, match=reason) as refused:
        taken(**settings).accepted(PROVIDER.token(**claims))
    assert refused.value.client_message == '{"status":"invalid_token"}'


def test_token_with_what_is_expected_is_taken() -> None:
    """One of several audiences is enough; clocks may differ a little; claims have the names that are set."""
    settings = {"expected_audience": ("kafka", "other"), "expected_issuer": ISSUER, "sub_claim_name": "email"}
    now_s = int(time.time())
    token = PROVIDER.token(
        aud=["web", "kafka"], iss=ISSUER, email="ann@x", scope="a", exp=now_s - 10, iat=now_s - 20
    )
    assert taken(**settings).accepted(token).principal_name == "ann@x"


def test_token_that_nobody_or_somebody_else_has_signed_is_refused() -> None:
    """No algorithm, another key under the provider's name, and a changed claim."""
    claims = {"sub": "eve", "iat": int(time.time()), "exp": int(time.time()) + 60}
    stranger = IdentityProvider("stranger")
    head, _, signature = PROVIDER.token().split(".")
    for token in (
        f"{encoded({'alg': 'none'})}.{encoded(claims)}.",
        f"{encoded({'alg': 'none', 'kid': PROVIDER.key_id})}.{encoded(claims)}.{signature}",
        stranger.token(headers={"kid": PROVIDER.key_id}),
        f"{head}.{encoded(claims)}.{signature}",
        "not a token",
        "a.b.c",
        f"{encoded(b'[' * 6000)}.{encoded(claims)}.{signature}",
    ):
        with pytest.raises(TokenError):
            taken().accepted(token)


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_token_that_is_signed_with_the_public_key_as_a_secret_is_refused(encoding: Encoding) -> None:
    """Everybody knows the public key: a token that names HMAC must not have it checked with that."""
    secret = PROVIDER.private_key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    head, claims = {"alg": "HS256", "kid": PROVIDER.key_id}, {"sub": "eve", "iat": 1, "exp": 2**33}
    signed = f"{encoded(head)}.{encoded(claims)}"
    token = f"{signed}.{encoded(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"
    with pytest.raises(TokenError, match="the provider has no key"):
        taken().accepted(token)


def test_key_set_holds_only_keys_that_nobody_else_can_sign_with() -> None:
    """Shared secrets, keys for encryption and keys of unknown kinds are passed over, and named if all are."""
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256"}
    others = [secret, {**PROVIDER.jwk(), "use": "enc"}, {"kty": "RSA"}, {"kty": ["RSA"]}, "text", None]
    with pytest.raises(ValueError, match="none of its 6 keys"):
        VerificationKeys.parse(json.dumps({"keys": others}).encode())
    keys = VerificationKeys.parse(json.dumps({"keys": [*others, PROVIDER.jwk()]}).encode())
    assert [key.key_id for key in keys.keys] == [PROVIDER.key_id]
    for text in (b"", b"[]", b"{}", b'{"keys": 1}', b"[" * 100_000, b"\xff"):
        with pytest.raises(ValueError, match="key set"):
            VerificationKeys.parse(text)


def test_key_is_used_with_its_own_algorithm_only() -> None:
    """A key set may say which, and what a token says of itself does not change it."""
    keys = VerificationKeys.parse(json.dumps({"keys": [{**PROVIDER.jwk(), "alg": "RS256"}]}).encode())
    assert keys.find(PROVIDER.key_id, "RS256") is not None
    assert keys.find(None, "RS256") is not None
    for key_id, algorithm in (
        (PROVIDER.key_id, "PS256"),
        (PROVIDER.key_id, ["RS256"]),
        ("other", "RS256"),
        ({}, "RS256"),
    ):
        assert keys.find(key_id, algorithm) is None
