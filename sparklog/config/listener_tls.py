"""What a listener of SSL or SASL_SSL shows and asks for, by the configuration as it holds for it."""

from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import ConfigError
from sparklog.config.listener_overrides import ListenerKey
from sparklog.endpoints import SecurityProtocol
from sparklog.security.tls.contexts import server_context
from sparklog.security.tls.errors import TlsConfigError
from sparklog.security.tls.principal import PrincipalMapper
from sparklog.wire.tls_handshakes import ServerTls

__all__ = ["listener_tls"]

_ENCRYPTED = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


def listener_tls(config: BrokerConfig, listener_name: str, protocol: SecurityProtocol) -> ServerTls | None:
    """Return it; None for a listener that is not encrypted. Reads files.

    Raises:
        ConfigError: a key is missing, contradicts another, or names a file that is of no use.
    """
    if protocol not in _ENCRYPTED:
        return None
    settings = config.of_listener(listener_name).tls_settings()
    try:
        return ServerTls(
            server_context(settings), PrincipalMapper(settings.principal_mapping_rules).principal
        )
    except TlsConfigError as error:
        raise ConfigError(
            error.key,
            None,
            f"{error.reason} (of listener {listener_name}; for it alone the key is "
            f"{ListenerKey(listener_name, error.key)})",
        ) from error
