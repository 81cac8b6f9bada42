"""What a listener says of keys that it does not go by."""

import logging

import pytest

from sparklog.node.config import BrokerConfig
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.application_secret import ApplicationSecret
from tests.certificates import Authority

SECRET = ApplicationSecret.new()


@pytest.mark.parametrize("trusts", [True, False])
def test_trust_store_of_a_listener_for_the_inside_alone_is_told_to_be_unread(
    trusts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Who trusts an authority there waits in vain for those whom it certifies."""
    keys = {"listeners": "SSL://127.0.0.1:0", "inter.broker.listener.name": "SSL"}
    if trusts:
        keys |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Authority().pem}
    with caplog.at_level(logging.WARNING):
        assert listener_tls(BrokerConfig.from_mapping(keys), "SSL", SecurityProtocol.SSL, SECRET) is not None
    client_message = [record.getMessage() for record in caplog.records]
    assert [line.startswith("Listener SSL has no ssl.keystore") for line in client_message] == [True] * trusts
    assert all("its ssl.truststore is ignored" in line for line in client_message)
