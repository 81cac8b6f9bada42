"""Kafka's `sasl.` keys of a broker: the authentication of clients on SASL_PLAINTEXT and SASL_SSL listeners.

Each may be set for one listener alone, and those of a mechanism for this mechanism alone. The users of PLAIN
are in the configuration of their listener, as in Kafka: `listener.name.<name>.plain.sasl.jaas.config`; those
of SCRAM in the metadata log.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.node.config.definition import (
    CLASS,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    Rule,
    at_least,
    config_key,
    one_of,
)
from sparklog.node.config.listener_overrides import MECHANISMS
from sparklog.node.config.password import Password
from sparklog.node.security.sasl.oauthbearer import OAUTHBEARER

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
UNSECURED_TOKENS_CLASS: Final = f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SIGNED_TOKENS_CLASSES: Final = (
    f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",  # before Kafka 4
)


@dataclass(frozen=True, kw_only=True)
class SaslKeys:
    sasl_enabled_mechanisms: tuple[str, ...] = config_key(
        LIST,
        ("GSSAPI",),
        f"The mechanisms that clients may authenticate with, of {', '.join(MECHANISMS)}. Kafka's"
        " default, GSSAPI, is not supported: a SASL listener needs others.",
    )
    sasl_jaas_config: Password | None = config_key(
        PASSWORD,
        None,
        'The users of PLAIN and their passwords, as user_<name>="<password>", in'
        " listener.name.<name>.plain.sasl.jaas.config; for OAUTHBEARER, in"
        " listener.name.<name>.oauthbearer.sasl.jaas.config, the trust store for the identity provider"
        " (ssl.truststore. options), and the claims of unsecured tokens. Without a listener and a"
        " mechanism it has no effect, as in Kafka.",
    )
    connections_max_reauth_ms: int = config_key(
        LONG, 0, "The time after which SASL clients have to reauthenticate; 0 for never.", at_least(0)
    )
    connection_failed_authentication_delay_ms: int = config_key(
        INT, 100, "How long a client with wrong credentials waits for its error.", at_least(0)
    )
    sasl_server_max_receive_size: int = config_key(
        INT, 524288, "The largest request of a client that is not authenticated yet.", at_least(1)
    )
    sparklog_bootstrap_scram_file: str | None = config_key(
        STRING,
        None,
        "A file on the driver's host with the users of SCRAM that a new cluster begins with, one a line as"
        " kafka-storage.sh format --add-scram takes them: SCRAM-SHA-512=[name=admin,password=...]. A cluster"
        " that is there already keeps its users. Not a key of Kafka's.",
    )
    sasl_server_callback_handler_class: str | None = config_key(
        CLASS,
        None,
        "Which tokens OAUTHBEARER takes, by the names of Kafka's classes: signed ones,"
        f" {SIGNED_TOKENS_CLASSES[0]}, the default; or unsecured ones, with which a client may claim any"
        f" name, {UNSECURED_TOKENS_CLASS}."
        " Set as listener.name.<name>.oauthbearer.sasl.server.callback.handler.class.",
        one_of(*SIGNED_TOKENS_CLASSES, UNSECURED_TOKENS_CLASS),
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = config_key(
        STRING,
        None,
        "Where the identity provider's keys are, as a JSON Web Key Set: https://, http://, or file:// on the"
        " hosts of the driver and of all brokers. OAUTHBEARER needs it.",
        Rule(
            "a URL of https, http or file",
            lambda url: url.lower().startswith(("https://", "http://", "file:/")),
        ),
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = config_key(
        LONG,
        3600000,
        "How often the provider's keys are fetched again; files are read every 10 s at least.",
        at_least(1),
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = config_key(
        LONG,
        100,
        "The first pause after a failed fetch of the keys; it doubles with each failure.",
        at_least(1),
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = config_key(
        LONG, 10000, "The longest such pause.", at_least(1)
    )
    sasl_oauthbearer_clock_skew_seconds: int = config_key(
        INT, 30, "By how much the provider's clock and a broker's may differ.", at_least(0)
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = config_key(
        LIST,
        (),
        "The audiences of acceptable tokens. Set it: without it tokens of any audience are accepted.",
    )
    sasl_oauthbearer_expected_issuer: str | None = config_key(
        STRING, None, "The issuer of acceptable tokens. Set it: without it tokens of any issuer are accepted."
    )
    sasl_oauthbearer_scope_claim_name: str = config_key(
        STRING, "scope", "The claim that lists a token's scopes."
    )
    sasl_oauthbearer_sub_claim_name: str = config_key(STRING, "sub", "The claim that holds the user's name.")

    @property
    def takes_unsecured_tokens(self) -> bool:
        """Whether OAUTHBEARER accepts unsecured tokens; self is the configuration of one listener."""
        return (
            OAUTHBEARER in self.sasl_enabled_mechanisms
            and self.sasl_server_callback_handler_class == UNSECURED_TOKENS_CLASS
        )
