"""Token sources of a client: a file, an identity provider, or the client itself; and the login with a token.

Each source is a value that may travel to a task, and shows nothing of its secrets. A file is read for every
connection, so a tool may renew it at any time. All connections of a process share a token granted by a
provider (client credentials, RFC 6749, section 4.4) until most of its lifetime is over.

Source: Kafka's FileJwtRetriever, ClientCredentialsJwtRetriever, OAuthBearerUnsecuredLoginCallbackHandler.
"""

import json
import re
import threading
import time
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote_plus, urlencode

from sparklog.node.clocks import wall_clock_ms
from sparklog.node.security.oauth.http import ProviderError, fetched
from sparklog.node.security.oauth.unsecured_tokens import claims_of, unsecured_token
from sparklog.node.security.sasl.mechanism import ClientMechanism
from sparklog.node.security.sasl.oauthbearer import OAuthBearerLogin, TokenError
from sparklog.node.security.tls.settings import TlsSettings
from sparklog.protocol.errors import ErrorCode, KafkaError

_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_ANY_AUTHORITY: Final = TlsSettings()
_RENEWED_AT: Final = 0.8
"""As a share of a token's lifetime: Kafka's sasl.login.refresh.window.factor."""
_ASKED_AGAIN_S: Final = 10.0
"""The pause after a failed renewal while the old token is valid, as in Kafka."""


class TokenSource(Protocol):
    def token(self) -> str:
        """Return a valid token. Blocks.

        Raises:
            ProviderError, OSError: there is none.
        """


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file that an external tool keeps fresh."""

    path: str

    def token(self) -> str:
        token = Path(self.path).read_text().strip()
        if not _TOKEN.fullmatch(token):
            raise ProviderError(f"{self.path} does not hold a token", is_final=True)
        return token


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """The client itself: unsecured tokens with the claims it is given."""

    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...]
    lifetime_s: int = 3600

    def token(self) -> str:
        now_s = wall_clock_ms() / 1000
        return unsecured_token({**dict(self.claims), "iat": now_s, "exp": now_s + self.lifetime_s})


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A provider that grants tokens for a client's secret."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    urlencode: bool = False
    tls: TlsSettings = _ANY_AUTHORITY

    def token(self) -> str:
        grant = _GRANTS.setdefault(self, _Grant())
        with grant.lock:
            asked_s = time.monotonic()
            if asked_s >= grant.renewed_s:
                try:
                    grant.token, lifetime_s = self._granted()
                except ProviderError:
                    if asked_s >= grant.ends_s:
                        raise
                    grant.renewed_s = asked_s + _ASKED_AGAIN_S  # the old token is still valid
                else:
                    grant.renewed_s = asked_s + _RENEWED_AT * lifetime_s
                    grant.ends_s = asked_s + lifetime_s
            return grant.token

    def _granted(self) -> tuple[str, float]:
        """Return a new token and its lifetime in seconds."""
        credentials = (self.client_id, self.client_secret)
        user, password = map(quote_plus, credentials) if self.urlencode else credentials
        form = {"grant_type": "client_credentials"} | ({} if self.scope is None else {"scope": self.scope})
        content = fetched(
            self.url,
            self.tls,
            data=urlencode(form).encode(),
            headers={
                "Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode(),
                "Cache-Control": "no-cache",
            },
        )
        try:
            answer: Any = json.loads(content)
            token = answer.get("access_token") or answer.get("id_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token.strip()):
            raise ProviderError(f"{self.url} has answered without a token")
        return token.strip(), _lifetime_s(answer.get("expires_in"), token.strip())


@dataclass(frozen=True, slots=True)
class BearerLogin:
    """A login with tokens of a source; calling it begins an exchange."""

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __call__(self, address: str) -> ClientMechanism:
        """Return a new exchange; a token is valid at every address.

        Raises:
            KafkaError: the source has no token.
        """
        try:
            return OAuthBearerLogin(self.source.token(), dict(self.extensions))
        except ProviderError as error:
            code = ErrorCode.sasl_authentication_failed if error.is_final else ErrorCode.network_exception
            raise KafkaError(code, f"no token for {address}: {error}") from error
        except (OSError, ValueError) as error:
            raise KafkaError(
                ErrorCode.sasl_authentication_failed, f"no token for {address}: {error}"
            ) from error


class _Grant:
    """The last grant of a provider; times by the monotonic clock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token = ""
        self.renewed_s = self.ends_s = 0.0


_GRANTS: Final[dict[ClientCredentials, _Grant]] = {}


def _lifetime_s(expires_in: object, token: str) -> float:
    """Return the lifetime by the provider's answer, else by the token; 0 if neither has one."""
    if isinstance(expires_in, int | float):
        return float(expires_in)
    try:
        expires_s = claims_of(token).get("exp")
    except TokenError:
        return 0.0
    return expires_s - wall_clock_ms() / 1000 if isinstance(expires_s, int | float) else 0.0
