"""The login modules of a listener's mechanisms: `listener.name.<name>.<mechanism>.sasl.jaas.config`.

A mechanism has its own or none, as in Kafka. What is set without its name, for the listener or for all of
them, is for no mechanism, and a warning says so: users of PLAIN come in where they were meant to, and nowhere
else.

Source: Kafka's JaasContext.loadServerContext, ChannelBuilders.channelBuilderConfigs.
"""

import logging
from typing import Final

from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import ConfigError
from sparklog.config.listener_overrides import ListenerKey
from sparklog.security.sasl.jaas import JaasError, LoginModule, login_module

logger = logging.getLogger(__name__)

_NAME: Final = "sasl.jaas.config"


def jaas_key(listener_name: str, mechanism: str) -> str:
    """Return the key under which a mechanism of a listener has its login module."""
    return str(ListenerKey(listener_name, _NAME, f"{mechanism.lower()}."))


def own_login_module(config: BrokerConfig, listener_name: str, mechanism: str) -> LoginModule | None:
    """Return the login module of a mechanism; None if it has none of its own.

    Raises:
        ConfigError: what is set is no login module.
    """
    key = jaas_key(listener_name, mechanism)
    own = config.of_listener(listener_name, mechanism)
    if f"{mechanism.lower()}.{_NAME}" not in config.listener_overrides.get(listener_name, {}):
        if own.sasl_jaas_config is not None:
            logger.warning("%s is set without a mechanism, which is for none; meant may be %s", _NAME, key)
        return None
    assert own.sasl_jaas_config is not None
    try:
        return login_module(own.sasl_jaas_config.value)
    except JaasError as error:
        raise ConfigError(key, None, str(error)) from None
