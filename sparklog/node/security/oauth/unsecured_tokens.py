"""Unsecured tokens, without a signature: for trials only. A client may claim any name in them.

Kafka accepts them wherever OAUTHBEARER is enabled and nothing else is configured; here they have to be
enabled, by the name of Kafka's class. The options stand in the login module, as in Kafka.

Source: Kafka's OAuthBearerUnsecuredValidatorCallbackHandler, OAuthBearerUnsecuredLoginCallbackHandler.
"""

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.node.clocks import wall_clock_ms
from sparklog.node.security.oauth.claims import time_s
from sparklog.node.security.sasl.oauthbearer import BearerToken, TokenError

_PREFIX = "unsecuredValidator"


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    principal_claim_name: str = "sub"
    scope_claim_name: str = "scope"
    required_scopes: tuple[str, ...] = ()
    clock_skew_ms: int = 0
    now_ms: Callable[[], int] = wall_clock_ms

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> "UnsecuredTokens":
        """Return the settings of a login module's options.

        Raises:
            ValueError: an option is malformed.
        """

        def option(name: str) -> str:
            return options.get(f"{_PREFIX}{name}", "").strip()

        skew = option("AllowableClockSkewMs") or "0"
        if not (skew.isascii() and skew.isdigit()):
            raise ValueError(f"{_PREFIX}AllowableClockSkewMs is not a number of milliseconds")
        return cls(
            option("PrincipalClaimName") or "sub",
            option("ScopeClaimName") or "scope",
            tuple(option("RequiredScope").split()),
            int(skew),
        )

    def accepted(self, token: str) -> BearerToken:
        """Return the content of a valid token.

        Raises:
            TokenError: the token is invalid; the message says why.
        """
        header, claims, signature = _sections(token)
        if header.get("alg") != "none" or signature:
            raise TokenError("it is signed, and only unsecured tokens are expected")
        name = claims.get(self.principal_claim_name)
        if not isinstance(name, str) or not name.strip():
            raise TokenError(f"its claim {self.principal_claim_name} is empty or not a string")
        issued_s, expires_s = _time_s(claims, "iat"), _time_s(claims, "exp")
        now_ms = self.now_ms()
        if expires_s is None:
            raise TokenError("it has no expiration time")
        if issued_s is not None and 1000 * issued_s > now_ms + self.clock_skew_ms:
            raise TokenError("it was issued in the future")
        if now_ms - self.clock_skew_ms >= 1000 * expires_s:
            raise TokenError("it has expired")
        if issued_s is not None and expires_s <= issued_s:
            raise TokenError("it has expired before it was issued")
        scopes = claims.get(self.scope_claim_name)
        granted = scopes if isinstance(scopes, list) else [scopes]
        for scope in self.required_scopes:
            if scope not in (each.strip() for each in granted if isinstance(each, str)):
                missing = f"[{', '.join(self.required_scopes)}]"
                raise TokenError(f"it does not allow {scope}", missing)
        return BearerToken(name, round(1000 * expires_s))


def unsecured_token(claims: Mapping[str, Any]) -> str:
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def claims_of(token: str) -> Mapping[str, Any]:
    """Return the claims of any token, unverified.

    Raises:
        TokenError: it is not a JSON Web Token.
    """
    return _sections(token)[1]


def _sections(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    try:
        header, claims, signature = token.split(".")
        found = [json.loads(_decoded(each)) for each in (header, claims)]
    except (ValueError, binascii.Error, RecursionError):
        raise TokenError("it is not a JSON Web Token") from None
    if not all(isinstance(each, dict) for each in found):
        raise TokenError("it is not a JSON Web Token")
    return found[0], found[1], signature


def _time_s(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    return None if value is None else time_s(name, value)


def _encoded(section: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(section).encode()).decode().rstrip("=")


def _decoded(section: str) -> bytes:
    return urlsafe_b64decode(section + "=" * (-len(section) % 4))
