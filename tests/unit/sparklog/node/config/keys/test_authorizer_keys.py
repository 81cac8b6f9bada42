"""Who is asked for permission, as far as it is configured."""

import pytest

from sparklog.node.acls.acl import Principal
from sparklog.node.acls.machine.authorizer import AuthorizerSettings
from sparklog.node.config import BrokerConfig, ConfigError
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL

STANDARD = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def test_authorizer_is_asked_only_where_one_is_named() -> None:
    """Super users alone restrict nobody, as in Kafka."""
    assert BrokerConfig.from_mapping({"super.users": "User:ann"}).authorizer is None
    given = {
        **STANDARD,
        "super.users": "User:ann; User:CN=bob,O=us;",
        "allow.everyone.if.no.acl.found": "true",
    }
    assert BrokerConfig.from_mapping(given).authorizer == AuthorizerSettings(
        frozenset({Principal("User", "ann"), Principal("User", "CN=bob,O=us"), CLUSTER_PRINCIPAL}), True
    )
    assert BrokerConfig.from_mapping(STANDARD).with_identity(1, None).authorizer == AuthorizerSettings(
        frozenset({CLUSTER_PRINCIPAL})
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"authorizer.class.name": "com.example.Mine"}, "empty or org.apache.kafka.metadata"),
        ({**STANDARD, "super.users": "ann"}, "ann is not a principal; write it as User:ann"),
        ({"super.users": ":ann"}, ":ann is not a principal"),
    ],
)
def test_authorizer_that_can_not_be_is_refused(given: dict[str, str], message: str) -> None:
    """A cluster that starts without the authorizer that was meant is open."""
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_mapping(given)
