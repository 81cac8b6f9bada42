"""The authentication of a listener's connections, by its configuration."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from sparklog.node.config.broker import BrokerConfig
from sparklog.node.config.definition import ConfigError
from sparklog.node.config.listener_overrides import MECHANISMS, ListenerKey
from sparklog.node.config.listener_security.listener_jaas import jaas_key, own_login_module
from sparklog.node.security.sasl.mechanism import ServerMechanism
from sparklog.node.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerVerification
from sparklog.node.security.sasl.plain import PLAIN, PlainVerification
from sparklog.node.security.sasl.scram import SCRAM_ALGORITHMS, ScramCredential, ScramVerification
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.machine.authenticator import Mechanisms

if TYPE_CHECKING:
    from sparklog.node.security.oauth.provider_keys import ProviderKeys

logger = logging.getLogger(__name__)

CredentialOf = Callable[[str, str], ScramCredential | None]
"""Returns the SCRAM credential of a user name and mechanism."""

_USER: Final = "user_"
_MODULE: Final = "PlainLoginModule"


def listener_authentication(
    config: BrokerConfig,
    listener_name: str,
    cluster_mechanisms: Mapping[str, Callable[[], ServerMechanism]],
    credential_of: CredentialOf,
    ready: asyncio.Event | None = None,
) -> Authentication:
    """Return the authentication of a listener. `cluster_mechanisms` are accepted on every listener.

    Clients wait until `ready` is set.

    Raises:
        ConfigError: a SASL listener has no mechanism, an unsupported one, no users of PLAIN, or no identity
            provider.
    """
    begin = dict(cluster_mechanisms)
    if not config.security_protocol(listener_name).is_sasl:
        return Authentication(Mechanisms(begin))
    own = config.of_listener(listener_name)
    keys: ProviderKeys | None = None
    for mechanism in own.sasl_enabled_mechanisms:
        if mechanism == PLAIN:
            begin[mechanism] = partial(PlainVerification, _passwords(config, listener_name))
        elif mechanism in SCRAM_ALGORITHMS:
            _check_scram_login(config, listener_name, mechanism)
            begin[mechanism] = partial(_verify_scram, mechanism, credential_of)
        elif mechanism == OAUTHBEARER:
            from sparklog.node.config.listener_security.listener_oauth import (
                tokens_taken,  # only few clusters pay for it
            )

            accepted, keys = tokens_taken(config, listener_name)
            begin[mechanism] = partial(OAuthBearerVerification, accepted)
        else:
            raise ConfigError(
                str(ListenerKey(listener_name, "sasl.enabled.mechanisms")),
                ",".join(own.sasl_enabled_mechanisms),
                f"a SASL listener needs some of {', '.join(MECHANISMS)}; {mechanism} is not supported"
                " (docs/security.md)",
            )
    offered = tuple(mechanism for mechanism in begin if mechanism not in cluster_mechanisms)
    if not offered:
        raise ConfigError(
            str(ListenerKey(listener_name, "sasl.enabled.mechanisms")),
            None,
            f"a SASL listener needs some of {', '.join(MECHANISMS)}",
        )
    limits = {each: config.of_listener(listener_name, each).connections_max_reauth_ms for each in offered}
    waited_for = [ready, None if keys is None else keys.tried]
    return Authentication(
        Mechanisms(begin, offered, limits),
        principal=None,
        failed_delay_ms=own.connection_failed_authentication_delay_ms,
        max_receive_bytes=own.sasl_server_max_receive_size,
        ready=[event for event in waited_for if event is not None],
        upkeep=None if keys is None else keys.run,
    )


def _verify_scram(mechanism: str, credential_of: CredentialOf) -> ScramVerification:
    return ScramVerification(mechanism, lambda user: credential_of(user, mechanism))


def _check_scram_login(config: BrokerConfig, listener_name: str, mechanism: str) -> None:
    """Warn of a user in a SCRAM login module, which has no effect here.

    Raises:
        ConfigError: the value is not a login module.
    """
    module = own_login_module(config, listener_name, mechanism)
    if module is not None and module.options:
        logger.warning(
            "%s names the user that Kafka's brokers log in as. Brokers here authenticate each other without"
            " it, and it"
            " creates no user: those of SCRAM are in the metadata log (sparklog.bootstrap.scram.file, "
            "kafka-configs.sh)",
            jaas_key(listener_name, mechanism),
        )


def _passwords(config: BrokerConfig, listener_name: str) -> Mapping[str, str]:
    """Return the passwords of PLAIN by user name.

    Raises:
        ConfigError: there are none.
    """
    module = own_login_module(config, listener_name, PLAIN)
    if module is None:
        raise ConfigError(
            jaas_key(listener_name, PLAIN),
            None,
            "PLAIN needs its users: org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_<name>="<password>";',
        )
    if module.name.rpartition(".")[2] != _MODULE:
        raise ConfigError(
            jaas_key(listener_name, PLAIN), None, f"it names another login module than {_MODULE}"
        )
    return {
        name.removeprefix(_USER): password
        for name, password in module.options.items()
        if name.startswith(_USER)
    }
