"""The `kafka.sasl.oauthbearer.*` options: a client's source of tokens, as in Kafka's settings.

Files are read and providers asked when connections are made: in the tasks, on the executors' hosts. No error
shows a value: some of them are secrets.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from sparklog.node.security.oauth.client_tokens import (
    BearerLogin,
    ClientCredentials,
    OwnTokens,
    TokenFile,
    TokenSource,
)
from sparklog.node.security.oauth.http import provider_tls
from sparklog.node.security.sasl.mechanism import SaslError
from sparklog.node.security.sasl.oauthbearer import check_extensions
from sparklog.user.dataframe.errors import DataSourceOptionError

_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE: Final = "sasl.oauthbearer.scope"
_URLENCODE: Final = "sasl.oauthbearer.header.urlencode"
_HANDLER: Final = "sasl.login.callback.handler.class"
OAUTH_SETTINGS: Final = frozenset({_ENDPOINT, _CLIENT_ID, _CLIENT_SECRET, _SCOPE, _URLENCODE, _HANDLER})
_UNSECURED: Final = "unsecuredLogin"
_TOKENS_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_OWN_TOKENS_HANDLER: Final = "OAuthBearerUnsecuredLoginCallbackHandler"


def bearer_login(settings: Mapping[str, str], options: Mapping[str, str]) -> BearerLogin:
    """Return the login by the settings, without `kafka.`, and the options of the login module.

    Raises:
        DataSourceOptionError: no setting names the source of tokens, or a value is malformed.
    """
    handler = settings.get(_HANDLER, "").strip().rpartition(".")[2]
    if handler not in ("", _TOKENS_HANDLER, _OWN_TOKENS_HANDLER):
        raise DataSourceOptionError(
            f"Option 'kafka.{_HANDLER}' names an unknown class; {_TOKENS_HANDLER} and "
            f"{_OWN_TOKENS_HANDLER} are known"
        )
    url = settings.get(_ENDPOINT, "").strip()
    is_own = handler == _OWN_TOKENS_HANDLER or not (handler or url)
    prefix = f"{_UNSECURED}Extension_" if is_own else "extension_"
    extensions = {
        name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)
    }
    try:
        check_extensions(extensions)
    except SaslError as error:
        raise DataSourceOptionError(f"Option 'kafka.sasl.jaas.config': {error}") from None
    source = _own_tokens(options) if is_own else _tokens_of(url, settings, options)
    return BearerLogin(source, tuple(extensions.items()))


def _tokens_of(url: str, settings: Mapping[str, str], options: Mapping[str, str]) -> TokenSource:
    parts = urlsplit(url)
    match parts.scheme.lower():
        case "file":
            return TokenFile(unquote(parts.path))
        case "http" | "https":
            return _client_credentials(settings, options, url)
    raise DataSourceOptionError(f"Option 'kafka.{_ENDPOINT}' must be a URL of https, http or file")


def _client_credentials(
    settings: Mapping[str, str], options: Mapping[str, str], url: str
) -> ClientCredentials:
    client_id = settings.get(_CLIENT_ID) or options.get("clientId", "")
    client_secret = settings.get(_CLIENT_SECRET) or options.get("clientSecret", "")
    for value, name in ((client_id, _CLIENT_ID), (client_secret, _CLIENT_SECRET)):
        if not value.strip():
            raise DataSourceOptionError(f"Option 'kafka.{name}' must be specified: {url} asks for it")
    return ClientCredentials(
        url,
        client_id.strip(),
        client_secret.strip(),
        (settings.get(_SCOPE) or options.get("scope") or "").strip() or None,
        settings.get(_URLENCODE, "false").strip().lower() == "true",
        provider_tls(options),
    )


def _own_tokens(options: Mapping[str, str]) -> OwnTokens:
    claims: dict[str, str | float | tuple[str, ...]] = {}
    try:
        lifetime_s = int(options.get(f"{_UNSECURED}LifetimeSeconds", "3600"))
        for option, value in options.items():
            kind, _, claim = option.removeprefix(_UNSECURED).partition("_")
            match kind:
                case "StringClaim":
                    claims[claim] = value
                case "NumberClaim":
                    claims[claim] = float(value)
                case "ListClaim":
                    claims[claim] = tuple(value[1:].split(value[:1])) if len(value) > 1 else ()
    except ValueError:
        raise DataSourceOptionError(
            f"Option 'kafka.sasl.jaas.config': one of the {_UNSECURED}... options is not a number"
        ) from None
    if not claims:
        raise DataSourceOptionError(
            f"Option 'kafka.{_ENDPOINT}' must be specified: where tokens come from, as file:///... or the "
            "https:// address of an identity provider that grants it"
        )
    return OwnTokens(tuple(claims.items()), lifetime_s)
