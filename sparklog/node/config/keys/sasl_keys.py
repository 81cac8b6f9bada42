"""Kafka's `sasl.` keys of a broker: the authentication of clients on SASL_PLAINTEXT and SASL_SSL listeners.

Each may be set for one listener alone, and those of a mechanism for this mechanism alone. The users of PLAIN
are in the configuration of their listener, as in Kafka: `listener.name.<name>.plain.sasl.jaas.config`; those
of SCRAM in the metadata log.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.node.config.definition import Rule
from sparklog.node.config.key_table import broker_key
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
    sasl_enabled_mechanisms: tuple[str, ...] = broker_key("sasl.enabled.mechanisms")
    sasl_jaas_config: Password | None = broker_key("sasl.jaas.config")
    connections_max_reauth_ms: int = broker_key("connections.max.reauth.ms")
    connection_failed_authentication_delay_ms: int = broker_key("connection.failed.authentication.delay.ms")
    sasl_server_max_receive_size: int = broker_key("sasl.server.max.receive.size")
    sparklog_bootstrap_scram_file: str | None = broker_key("sparklog.bootstrap.scram.file")
    sasl_server_callback_handler_class: str | None = broker_key("sasl.server.callback.handler.class")
    sasl_oauthbearer_jwks_endpoint_url: str | None = broker_key(
        "sasl.oauthbearer.jwks.endpoint.url",
        Rule(
            "a URL of https, http or file",
            lambda url: url.lower().startswith(("https://", "http://", "file:/")),
        ),
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = broker_key("sasl.oauthbearer.jwks.endpoint.refresh.ms")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = broker_key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = broker_key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
    )
    sasl_oauthbearer_clock_skew_seconds: int = broker_key("sasl.oauthbearer.clock.skew.seconds")
    sasl_oauthbearer_expected_audience: tuple[str, ...] = broker_key("sasl.oauthbearer.expected.audience")
    sasl_oauthbearer_expected_issuer: str | None = broker_key("sasl.oauthbearer.expected.issuer")
    sasl_oauthbearer_scope_claim_name: str = broker_key("sasl.oauthbearer.scope.claim.name")
    sasl_oauthbearer_sub_claim_name: str = broker_key("sasl.oauthbearer.sub.claim.name")

    @property
    def takes_unsecured_tokens(self) -> bool:
        """Whether OAUTHBEARER accepts unsecured tokens; self is the configuration of one listener."""
        return (
            OAUTHBEARER in self.sasl_enabled_mechanisms
            and self.sasl_server_callback_handler_class == UNSECURED_TOKENS_CLASS
        )
