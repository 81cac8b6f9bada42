"""The `kafka.sasl.*` options: with the meaning of Kafka's client settings of these names.

No error shows a value: some of them are secrets.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.node.security.sasl.jaas import JaasError, LoginModule, login_module
from sparklog.node.security.sasl.mechanism import Login
from sparklog.node.security.sasl.oauthbearer import OAUTHBEARER
from sparklog.node.security.sasl.password_login import PasswordLogin
from sparklog.node.security.sasl.plain import PLAIN
from sparklog.node.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.oauth_options import OAUTH_SETTINGS, bearer_login

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
