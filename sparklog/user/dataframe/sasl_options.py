"""The `kafka.sasl.*` options: with the meaning of Kafka's client settings of these names.

Those of `kafka.sasl.oauthbearer.*` give a client's source of tokens. Files are read and providers asked when
connections are made: in the tasks, on the executors' hosts. No error shows a value: some of them are secrets.
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
from sparklog.node.security.sasl.jaas import JaasError, LoginModule, login_module
from sparklog.node.security.sasl.mechanism import Login, SaslError
from sparklog.node.security.sasl.oauthbearer import OAUTHBEARER, check_extensions
from sparklog.node.security.sasl.password_login import PasswordLogin
from sparklog.node.security.sasl.plain import PLAIN
from sparklog.node.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512
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


SASL_SETTINGS: Final = frozenset({"sasl.jaas.config", "sasl.mechanism"}) | OAUTH_SETTINGS
_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    SCRAM_SHA_256: "ScramLoginModule",
    SCRAM_SHA_512: "ScramLoginModule",
    OAUTHBEARER: "OAuthBearerLoginModule",
}


def sasl_login(settings: Mapping[str, str]) -> Login:
    """Return the login by these settings, without their prefix `kafka.`.

    Raises:
        DataSourceOptionError: a setting is missing or malformed, or the mechanism is not supported.
    """
    mechanism = settings.get("sasl.mechanism", "GSSAPI").strip()
    if mechanism not in _MODULES:
        raise DataSourceOptionError(
            f"Option 'kafka.sasl.mechanism' is '{mechanism}'; it must be one of {', '.join(_MODULES)}"
        )
    module = _module(settings, mechanism)
    if mechanism == OAUTHBEARER:
        return bearer_login(settings, {} if module is None else module.options)
    if module is None:
        raise DataSourceOptionError(
            "Option 'kafka.sasl.jaas.config' must be specified: org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="..." password="...";'
        )
    try:
        return PasswordLogin(mechanism, module.options["username"], module.options["password"])
    except KeyError as error:
        raise DataSourceOptionError(f"Option 'kafka.sasl.jaas.config' has no {error.args[0]}") from None


def _module(settings: Mapping[str, str], mechanism: str) -> LoginModule | None:
    text = settings.get("sasl.jaas.config")
    if text is None:
        return None
    try:
        module = login_module(text)
    except JaasError as error:
        raise DataSourceOptionError(f"Option 'kafka.sasl.jaas.config': {error}") from None
    expected = _MODULES[mechanism]
    if module.name.rpartition(".")[2] != expected:
        raise DataSourceOptionError(
            f"Option 'kafka.sasl.jaas.config' must name the login module {expected}, which {mechanism} needs"
        )
    return module
