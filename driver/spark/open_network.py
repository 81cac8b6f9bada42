"""Clients on other hosts must authenticate, at the cluster's listeners and at Spark's own ports.

Unless the configuration declares the network trusted. Checked before a job is submitted.
"""

import logging
from typing import Final

from pyspark import SparkContext

from sparklog.driver.spark.hosts import is_loopback
from sparklog.driver.spark.private_sockets import private_sockets_remedy
from sparklog.driver.spark.slots import is_allocated_dynamically, is_local_mode
from sparklog.hosting import OpenNetworkError
from sparklog.node.config import BrokerConfig
from sparklog.node.config.listener_overrides import ListenerKey
from sparklog.node.config.listener_security.listener_tls import listener_tls_settings
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.sasl.oauthbearer import OAUTHBEARER
from sparklog.node.serving.requests import ANONYMOUS

logger = logging.getLogger(__name__)

TRUSTED_NETWORK: Final = "sparklog.trusted.network"
_ENCRYPTING = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
"""Each of these encrypts Spark's RPC."""


def check_listeners(config: BrokerConfig) -> None:
    """Check that listeners beyond loopback authenticate clients, or allow only what ACLs allow.

    Raises:
        OpenNetworkError: A listener does not, and the network is not declared trusted.
    """
    if config.sparklog_trusted_network:
        return
    for name, host in _bound(config):
        reason = None if is_loopback(host) else _why_open(config, name)
        if reason is not None:
            raise OpenNetworkError(
                f"{name}://{host} is reached from other hosts, and {reason}, or, in a network whose hosts "
                f"you all trust, set {TRUSTED_NETWORK}=true (docs/security.md)"
            )


def check_spark_authenticates(spark_context: SparkContext, config: BrokerConfig) -> None:
    """Refuse to start with spark.authenticate off if a listener is reachable from other hosts.

    On loopback it is a warning: the machine may have a single user, and a running session's setting cannot be
    changed.

    Raises:
        OpenNetworkError: A listener is reachable from other hosts, and Spark does not authenticate.
    """
    if config.sparklog_trusted_network or _is_authenticated(spark_context):
        return
    bound = _bound(config)
    for name, host in bound:
        if not is_loopback(host):
            raise OpenNetworkError(
                f"{name}://{host} is reachable from other hosts, and spark.authenticate is false: any client "
                "of Spark's own ports could run code in the application, or take an executor's place "
                "with all its secrets. Set spark.authenticate=true (and a spark.authenticate.secret, but in "
                "local mode, on YARN and on Kubernetes), or, in a network whose hosts you all trust, set "
                f"{TRUSTED_NETWORK}=true in the cluster's configuration (docs/security.md)"
            )
    if _asks_clients(config, bound):
        logger.warning(
            "Clients have to authenticate, but Spark's own ports do not require it: any process that reaches "
            "those can run code in the application. Set spark.authenticate=true (docs/security.md)"
        )


def check_barrier_tasks(spark_context: SparkContext, config: BrokerConfig) -> None:
    """Check that unauthenticated connections cannot end executors, if clients have to log in.

    The executor of a barrier task accepts connections on a loopback port, from every user of its host. A
    connection that is closed at once, stays silent for 10 s or brings a wrong token raises an uncaught
    exception in a thread of the executor, and Spark ends the JVM for it (status 50). A driver in local mode
    only loses that thread, which brokers do not use.
    Source: Spark's BasePythonRunner (`accept-connections`), SocketAuthHelper, SparkUncaughtExceptionHandler.

    Raises:
        OpenNetworkError: A listener is reachable from other hosts, and barrier tasks have ports.
    """
    if config.sparklog_trusted_network or is_local_mode(spark_context):
        return
    if is_allocated_dynamically(spark_context):  # then brokers are no barrier tasks
        return
    remedy = private_sockets_remedy(spark_context)
    if remedy is None:
        return
    harm = (
        "every user of an executor's host can end that executor, and the broker in it, by one connection to "
        "the port of its barrier task"
    )
    bound = _bound(config)
    for name, host in bound:
        if not is_loopback(host):
            raise OpenNetworkError(
                f"{name}://{host} is reached from other hosts, and {harm}. {remedy}, or, where you trust all "
                f"users of these hosts, set {TRUSTED_NETWORK}=true in the cluster's configuration "
                "(docs/security.md)"
            )
    if _asks_clients(config, bound):
        logger.warning("Clients have to log in, but %s. %s (docs/security.md)", harm, remedy)


def warn_of_readable_spark(spark_context: SparkContext, config: BrokerConfig) -> None:
    """Warn if clients' connections are encrypted, but Spark's, which carry secrets, are not."""
    is_encrypted = any(endpoint.security_protocol.is_encrypted for endpoint in config.listeners)
    settings = spark_context.getConf()
    if is_encrypted and not any(settings.get(key, "false").lower() == "true" for key in _ENCRYPTING):
        logger.warning(
            "Clients' connections are encrypted, and Spark's between the application's hosts are not: the "
            "secret of driver and brokers, and the passwords of their configuration, go by those. Set "
            "spark.network.crypto.enabled=true (docs/security.md)"
        )


def _bound(config: BrokerConfig) -> list[tuple[str, str]]:
    """Return the listeners' names, and the hosts that brokers and driver bind for each."""
    bound = [(endpoint.name, endpoint.host) for endpoint in config.listeners]
    servers = config.controller_quorum_bootstrap_servers
    return bound + [(server.listener_name, server.address.host) for server in servers]


def _asks_clients(config: BrokerConfig, bound: list[tuple[str, str]]) -> bool:
    """Whether there is an authorizer, or a listener that authenticates clients."""
    return config.authorizer is not None or any(_why_open(config, name) is None for name, _ in bound)


def _why_open(config: BrokerConfig, listener_name: str) -> str | None:
    """Return why a listener does not authenticate clients, with the remedy; None if it does."""
    protocol = config.security_protocol(listener_name)
    if protocol.is_sasl:
        if config.of_listener(listener_name, OAUTHBEARER).takes_unsecured_tokens:
            return (
                "takes unsecured tokens, in which a client may claim any name: remove "
                "sasl.server.callback.handler.class and set sasl.oauthbearer.jwks.endpoint.url"
            )
        return None
    if protocol is SecurityProtocol.PLAINTEXT:
        return (
            "PLAINTEXT does not authenticate clients: give it SASL_SSL, SASL_PLAINTEXT, or SSL with "
            "ssl.client.auth=required in listener.security.protocol.map"
        )
    settings = listener_tls_settings(config, listener_name)
    if _is_denied_to_strangers(config):
        return None
    client_auth = settings.client_auth
    if client_auth == "required":
        # Without either, it is the brokers' own listener, and accepts the cluster's internal certificates.
        if settings.truststore.is_given or not settings.keystore.is_given:
            return None
        return (
            "without a trust store it accepts a certificate of any authority that the system trusts, which"
            " is "
            f"available to everyone: set {ListenerKey(listener_name, 'ssl.truststore.location')}"
        )
    key = ListenerKey(listener_name, "ssl.client.auth")
    return (
        f"with ssl.client.auth={client_auth} SSL does not authenticate clients: give it SASL_SSL or"
        f" SASL_PLAINTEXT "
        f"in listener.security.protocol.map, or SSL with {key}=required, or configure an authorizer without "
        "allow.everyone.if.no.acl.found"
    )


def _is_denied_to_strangers(config: BrokerConfig) -> bool:
    """Whether unauthenticated clients may do only what ACLs allow.

    Not with allow.everyone.if.no.acl.found: a cluster begins without ACLs, and any client may then create
    topics, users and ACLs.
    """
    settings = config.authorizer
    return (
        settings is not None
        and not settings.allow_everyone_if_no_acl_found
        and ANONYMOUS not in settings.super_users
    )


def _is_authenticated(spark_context: SparkContext) -> bool:
    return str(spark_context.getConf().get("spark.authenticate", "false")).lower() == "true"
