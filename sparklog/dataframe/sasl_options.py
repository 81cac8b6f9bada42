"""The `kafka.sasl.*` options: what Kafka's client settings of these names mean in the connector.

No error shows a value: some of them are secrets.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.dataframe.errors import DataSourceOptionError
from sparklog.dataframe.oauth_options import OAUTH_SETTINGS, bearer_login
from sparklog.security.sasl.jaas import JaasError, LoginModule, login_module
from sparklog.security.sasl.mechanism import Login
from sparklog.security.sasl.oauthbearer import OAUTHBEARER
from sparklog.security.sasl.password_login import PasswordLogin
from sparklog.security.sasl.plain import PLAIN
from sparklog.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512

SASL_SETTINGS: Final = frozenset({"sasl.jaas.config", "sasl.mechanism"}) | OAUTH_SETTINGS
_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    SCRAM_SHA_256: "ScramLoginModule",
    SCRAM_SHA_512: "ScramLoginModule",
    OAUTHBEARER: "OAuthBearerLoginModule",
}
"""The login module that goes with each mechanism."""


def sasl_login(settings: Mapping[str, str]) -> Login:
    """Return how to log in by what is given under these names, which stand without `kafka.`.

    Raises:
        DataSourceOptionError: a setting is missing or malformed, or another way to log in is asked for.
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
    """Return the login module that is given, None if there is none."""
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
            f"Option 'kafka.sasl.jaas.config' names another login module than {expected}, which {mechanism} "
            "goes with"
        )
    return module
