"""Tokens that nobody has signed, where they are asked for."""

from typing import Any

import pytest

from sparklog.node.security.oauth.unsecured_tokens import UnsecuredTokens, unsecured_token
from sparklog.node.security.sasl.oauthbearer import TokenError
from tests.identity_provider import IdentityProvider

NOW_MS = 1_000_000


def taken(**options: Any) -> UnsecuredTokens:
    return UnsecuredTokens(now_ms=lambda: NOW_MS, **options)


def test_unsecured_token_is_taken_at_its_word() -> None:
    """That is what it is for."""
    token = unsecured_token({"sub": "ann", "iat": 999.5, "exp": 1000.5, "scope": ["a", "b"]})
    accepted = taken(required_scopes=("a",)).accepted(token)
    assert (accepted.principal_name, accepted.expires_ms) == ("ann", 1_000_500)


@pytest.mark.parametrize(
    ("claims", "client_message"),
    [
        ({"sub": "ann"}, "invalid_token"),
        ({"sub": "", "exp": 2000}, "invalid_token"),
        ({"sub": "ann", "exp": 1000}, "invalid_token"),
        ({"sub": "ann", "exp": "2000"}, "invalid_token"),
        ({"sub": "ann", "exp": 2000, "iat": 1001}, "invalid_token"),
        ({"sub": "ann", "exp": 2000}, "insufficient_scope"),
    ],
)
def test_unsecured_token_that_says_something_else_is_refused(
    claims: dict[str, Any], client_message: str
) -> None:
    """Times and scopes are looked at all the same."""
    with pytest.raises(TokenError) as refused:
        taken(required_scopes=("a",)).accepted(unsecured_token(claims))
    assert client_message in refused.value.client_message


@pytest.mark.parametrize("token", ["", "..", "a.b.c", IdentityProvider().token(), "W10.W10.", "e30.e30."])
def test_token_that_is_none_or_signed_is_refused(token: str) -> None:
    """A signature that nobody checks must not look as if it had been checked."""
    with pytest.raises(TokenError):
        taken().accepted(token)


def test_options_of_the_login_module_are_kafkas() -> None:
    """What was tried out with Kafka goes on as it was."""
    options = {"unsecuredValidatorPrincipalClaimName": "name", "unsecuredValidatorRequiredScope": "a b"}
    assert UnsecuredTokens.of_options(options) == UnsecuredTokens("name", "scope", ("a", "b"))
    with pytest.raises(ValueError, match="AllowableClockSkewMs"):
        UnsecuredTokens.of_options({"unsecuredValidatorAllowableClockSkewMs": "-1"})
