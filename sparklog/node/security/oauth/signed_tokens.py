"""Signed tokens (JSON Web Tokens, RFC 7519): their signature, audience, issuer and lifetime.

PyJWT checks the signature, by a key of the provider's and an algorithm allowed for it, before any claim of
the token is read; then the times, the issuer and the audience. This module adds Kafka's further checks: both
times must be there, in order, and the claims with the user's name and scopes.

A token with an audience is refused if none is expected, as in Kafka's library.

Source: Kafka's BrokerJwtValidator, ClaimValidationUtils.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.node.security.oauth.claims import time_s
from sparklog.node.security.oauth.verification_keys import VerificationKey
from sparklog.node.security.sasl.oauthbearer import BearerToken, TokenError

_SHOWN: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTokenSettings:
    """The required claims of a token; named after Kafka's keys."""

    clock_skew_seconds: int = 30
    expected_audience: tuple[str, ...] = ()
    expected_issuer: str | None = None
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"


class SignedTokens:
    def __init__(
        self, settings: SignedTokenSettings, find_key: Callable[[object, object], VerificationKey | None]
    ) -> None:
        """`find_key` finds a provider's key by its name and an algorithm."""
        self._settings = settings
        self._find_key = find_key

    def accepted(self, token: str) -> BearerToken:
        """Return the content of a valid token.

        Raises:
            TokenError: the token is invalid; the message says why.
        """
        import jwt

        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            key_id, algorithm = header.get("kid"), header.get("alg")
            key = self._find_key(key_id, algorithm)
            if key is None:
                raise TokenError(
                    f"the provider has no key with the name {str(key_id)[:_SHOWN]!r} and the algorithm "
                    f"{str(algorithm)[:_SHOWN]!r}"
                )
            claims = jwt.decode(
                token,
                key.public_key,
                algorithms=key.algorithms,
                audience=settings.expected_audience or None,
                issuer=settings.expected_issuer,
                leeway=settings.clock_skew_seconds,
                options={
                    "require": ["exp", "iat"],
                    "verify_iat": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise TokenError(f"{type(error).__name__}: {str(error)[:_SHOWN]}") from None
        expires_ms, issued_ms = (int(1000 * time_s(name, claims[name])) for name in ("exp", "iat"))
        if expires_ms < issued_ms:
            raise TokenError("it has expired before it was issued")
        _check_scopes(settings.scope_claim_name, claims.get(settings.scope_claim_name))
        return BearerToken(_text(settings.sub_claim_name, claims.get(settings.sub_claim_name)), expires_ms)


def _check_scopes(name: str, scopes: object) -> None:
    if not isinstance(scopes, list):
        scopes = [scopes] if isinstance(scopes, str) else []
    seen = [_text(name, each) for each in scopes]
    if len(set(seen)) < len(seen):
        raise TokenError(f"its claim {name} names something twice")


def _text(name: str, value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        raise TokenError(f"its claim {name[:_SHOWN]} is empty or not a string")
    return text
