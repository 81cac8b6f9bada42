"""The `kafka.sasl.*` options: what Kafka's client settings of these names mean in the connector.

No error shows a value: some of them are secrets.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.dataframe.errors import DataSourceOptionError
from sparklog.security.sasl.jaas import JaasError, login_module
from sparklog.security.sasl.password_login import PASSWORD_MECHANISMS, PasswordLogin

__all__ = ["SASL_SETTINGS", "password_login"]

SASL_SETTINGS: Final = frozenset({"sasl.jaas.config", "sasl.mechanism"})
_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")


def password_login(settings: Mapping[str, str]) -> PasswordLogin:
    """Return what is given under these names, which stand without `kafka.`.

    Raises:
        DataSourceOptionError: a setting is missing or malformed, or another way to log in is asked for.
    """
    mechanism = settings.get("sasl.mechanism", "GSSAPI").strip()
    if mechanism not in PASSWORD_MECHANISMS:
        raise DataSourceOptionError(
            f"Option 'kafka.sasl.mechanism' is '{mechanism}'; it must be one of "
            f"{', '.join(PASSWORD_MECHANISMS)}"
        )
    text = settings.get("sasl.jaas.config")
    if text is None:
        raise DataSourceOptionError(
            "Option 'kafka.sasl.jaas.config' must be specified: org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="..." password="...";'
        )
    try:
        module = login_module(text)
    except JaasError as error:
        raise DataSourceOptionError(f"Option 'kafka.sasl.jaas.config': {error}") from None
    expected = _MODULES[mechanism.startswith("SCRAM-")]
    if module.name.rpartition(".")[2] != expected:
        raise DataSourceOptionError(
            f"Option 'kafka.sasl.jaas.config' names another login module than {expected}, which {mechanism} "
            "goes with"
        )
    try:
        return PasswordLogin(mechanism, module.options["username"], module.options["password"])
    except KeyError as error:
        raise DataSourceOptionError(f"Option 'kafka.sasl.jaas.config' has no {error.args[0]}") from None
