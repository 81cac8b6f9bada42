"""The tokens that a listener's OAUTHBEARER accepts, by its configuration."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from sparklog.node.config.broker import BrokerConfig
from sparklog.node.config.definition import ConfigError
from sparklog.node.config.listener_overrides import ListenerKey
from sparklog.node.config.listener_security.listener_jaas import jaas_key, own_login_module
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.security.oauth.http import fetched, provider_tls
from sparklog.node.security.oauth.provider_keys import ProviderKeys
from sparklog.node.security.oauth.signed_tokens import SignedTokens, SignedTokenSettings
from sparklog.node.security.oauth.unsecured_tokens import UnsecuredTokens
from sparklog.node.security.oauth.verification_keys import VerificationKeys
from sparklog.node.security.sasl.oauthbearer import OAUTHBEARER, BearerToken

logger = logging.getLogger(__name__)

FILE_REFRESH_MS: Final = 10_000
_PREFIX: Final = f"{OAUTHBEARER.lower()}."


class TokensTaken(NamedTuple):
    accepted: Callable[[str], BearerToken]
    """Returns the content of a valid token, or raises a TokenError."""
    keys: ProviderKeys | None
    """The identity provider's keys; None for unsecured tokens."""


def tokens_taken(config: BrokerConfig, listener_name: str) -> TokensTaken:
    """Return how a listener verifies tokens. Reads a file of keys, but no provider's.

    Raises:
        ConfigError: no identity provider is configured, or a file has no usable keys.
    """
    own = config.of_listener(listener_name, OAUTHBEARER)
    module = own_login_module(config, listener_name, OAUTHBEARER)
    options = {} if module is None else module.options
    if own.takes_unsecured_tokens:
        try:
            return TokensTaken(UnsecuredTokens.of_options(options).accepted, None)
        except ValueError as error:
            raise ConfigError(jaas_key(listener_name, OAUTHBEARER), None, str(error)) from None
    url = own.sasl_oauthbearer_jwks_endpoint_url
    url_key = _key(listener_name, "sasl.oauthbearer.jwks.endpoint.url")
    if url is None:
        raise ConfigError(
            url_key, None, "OAUTHBEARER needs the keys of the identity provider that signs its tokens"
        )
    backoff = ExponentialBackoff(
        own.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        own.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
    )
    refresh_ms = own.sasl_oauthbearer_jwks_endpoint_refresh_ms
    parts = urlsplit(url)
    if parts.scheme.lower() == "file":
        path = Path(unquote(parts.path))
        try:
            VerificationKeys.parse(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(url_key, url, str(error)) from error
        fetch: Callable[[], bytes] = path.read_bytes
        refresh_ms = min(refresh_ms, FILE_REFRESH_MS)
    else:
        tls = provider_tls(options)
        if parts.scheme.lower() == "http":
            logger.warning("%s=%s: without TLS an attacker on the network can replace the keys", url_key, url)

        def fetch() -> bytes:
            return fetched(url, tls)

    keys = ProviderKeys(f"{listener_name} ({url})", fetch, refresh_ms, backoff)
    for name, expected in (
        ("issuer", own.sasl_oauthbearer_expected_issuer),
        ("audience", own.sasl_oauthbearer_expected_audience),
    ):
        if not expected:
            logger.warning(
                "%s is not set: %s takes tokens without one",
                _key(listener_name, f"sasl.oauthbearer.expected.{name}"),
                listener_name,
            )
    settings = SignedTokenSettings(
        clock_skew_seconds=own.sasl_oauthbearer_clock_skew_seconds,
        expected_audience=own.sasl_oauthbearer_expected_audience,
        expected_issuer=own.sasl_oauthbearer_expected_issuer,
        scope_claim_name=own.sasl_oauthbearer_scope_claim_name,
        sub_claim_name=own.sasl_oauthbearer_sub_claim_name,
    )
    return TokensTaken(SignedTokens(settings, keys.find).accepted, keys)


def _key(listener_name: str, name: str) -> str:
    return str(ListenerKey(listener_name, name, _PREFIX))
