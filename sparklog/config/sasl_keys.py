"""Kafka's `sasl.` keys of a broker: how clients of SASL_PLAINTEXT and SASL_SSL listeners say who they are.

Each may be set for one listener alone. The users of PLAIN stand in the configuration of their listener, as in
Kafka: `listener.name.<name>.plain.sasl.jaas.config`; those of SCRAM in the metadata log.
"""

from dataclasses import dataclass

from sparklog.config.definition import ConfigType, at_least, config_key
from sparklog.config.password import Password
from sparklog.security.sasl.password_login import PASSWORD_MECHANISMS

__all__ = ["SaslKeys"]


@dataclass(frozen=True, kw_only=True)
class SaslKeys:
    """Mechanisms, and how long what they find out is good."""

    sasl_enabled_mechanisms: tuple[str, ...] = config_key(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        ("GSSAPI",),
        f"By which mechanisms clients may say who they are, of {', '.join(PASSWORD_MECHANISMS)}. Kafka's"
        " default, GSSAPI, is not here: a listener of SASL needs others.",
    )
    sasl_jaas_config: Password | None = config_key(
        "sasl.jaas.config",
        ConfigType.PASSWORD,
        None,
        'The users of PLAIN and their passwords, as user_<name>="<password>"; set as'
        " listener.name.<name>.plain.sasl.jaas.config.",
    )
    connections_max_reauth_ms: int = config_key(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        0,
        "After how long clients of SASL have to say again who they are; 0 for never.",
        at_least(0),
    )
    connection_failed_authentication_delay_ms: int = config_key(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        100,
        "How long a client whose credentials are not right waits to be told so.",
        at_least(0),
    )
    sasl_server_max_receive_size: int = config_key(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        524288,
        "How many bytes a request of a client may have of whom it is not known yet who he is.",
        at_least(1),
    )
