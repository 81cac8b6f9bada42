"""The login modules of a listener's mechanisms: `listener.name.<name>.<mechanism>.sasl.jaas.config`.

A mechanism has its own or none, as in Kafka. A value without a mechanism, for one listener or for all,
applies to no mechanism, and a warning says so: users of PLAIN are accepted only on the listener they were set
for.

Source: Kafka's JaasContext.loadServerContext, ChannelBuilders.channelBuilderConfigs.
"""

import logging
from typing import Final

from sparklog.node.config.broker import BrokerConfig
from sparklog.node.config.definition import ConfigError
from sparklog.node.config.listener_overrides import ListenerKey
from sparklog.node.security.sasl.jaas import JaasError, LoginModule, login_module

logger = logging.getLogger(__name__)

_NAME: Final = "sasl.jaas.config"


def jaas_key(listener_name: str, mechanism: str) -> str:
    return str(ListenerKey(listener_name, _NAME, f"{mechanism.lower()}."))


def own_login_module(config: BrokerConfig, listener_name: str, mechanism: str) -> LoginModule | None:
    """Return the login module of a mechanism; None if the mechanism has none.

    Raises:
        ConfigError: the value is not a login module.
    """
    key = jaas_key(listener_name, mechanism)
    own = config.of_listener(listener_name, mechanism)
    if f"{mechanism.lower()}.{_NAME}" not in config.listener_overrides.get(listener_name, {}):
        if own.sasl_jaas_config is not None:
            logger.warning("%s is set without a mechanism and has no effect; set %s instead", _NAME, key)
        return None
    assert own.sasl_jaas_config is not None
    try:
        return login_module(own.sasl_jaas_config.value)
    except JaasError as error:
        raise ConfigError(key, None, str(error)) from None
