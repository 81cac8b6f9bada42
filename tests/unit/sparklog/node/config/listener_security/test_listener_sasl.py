"""Which users a listener of SASL has by its configuration, and what is no user of anybody's."""

import logging

import pytest

from sparklog.node.config import BrokerConfig
from sparklog.node.config.definition import ConfigError
from sparklog.node.config.listener_security.listener_sasl import listener_authentication

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="s3cret";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="s3cret";'
OWN = "listener.name.sasl_plaintext"


def begin(mechanism: str, given: dict[str, str]) -> None:
    """Make out who may come, as a broker does when it starts."""
    config = BrokerConfig.from_mapping(
        {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": mechanism, **given}
    )
    listener_authentication(config, "SASL_PLAINTEXT", {}, lambda user, of: None)


@pytest.mark.parametrize("key", ["sasl.jaas.config", f"{OWN}.sasl.jaas.config"])
def test_users_of_plain_without_its_name_are_nobodys(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka. They may be meant for another listener, or for a client."""
    with pytest.raises(ConfigError, match=rf"{OWN}\.plain\.sasl\.jaas\.config: PLAIN needs its users"):
        begin("PLAIN", {key: PLAIN})
    assert "without a mechanism and has no effect" in caplog.text
    caplog.clear()
    begin("PLAIN", {key: SCRAM, f"{OWN}.plain.sasl.jaas.config": PLAIN})
    assert caplog.text == ""


def test_user_of_scrams_login_module_is_said_to_be_none(caplog: pytest.LogCaptureFixture) -> None:
    """It is in every configuration of Kafka's that is taken over. Its brokers log in so; ours need not."""
    key = f"{OWN}.scram-sha-512.sasl.jaas.config"
    begin("SCRAM-SHA-512", {key: SCRAM})
    ((_, level, line),) = caplog.record_tuples
    assert level == logging.WARNING
    assert line.startswith(f"{key} names the user that Kafka's brokers log in as")
    assert "s3cret" not in line
    caplog.clear()
    begin("SCRAM-SHA-512", {key: "org.apache.kafka.common.security.scram.ScramLoginModule required;"})
    assert caplog.text == ""
    with pytest.raises(ConfigError, match=r"scram-sha-512\.sasl\.jaas\.config: it does not end") as refused:
        begin("SCRAM-SHA-512", {key: SCRAM.removesuffix(";")})
    assert "s3cret" not in str(refused.value)
