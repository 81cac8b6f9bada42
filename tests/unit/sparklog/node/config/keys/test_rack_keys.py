"""The names of racks, and the hosts that are theirs."""

import pytest

from sparklog.node.config import BrokerConfig
from sparklog.node.config.definition import ConfigError

ZONES = "zone-a,zone-b"


def test_racks_have_the_names_that_are_given_and_numbers_beyond() -> None:
    """Consumers name zones by client.rack; a cluster may grow by a rack that has no name yet."""
    config = BrokerConfig.from_mapping({"sparklog.rack.names": ZONES})
    config.check_racks(3)
    assert [config.rack_name(number) for number in range(3)] == ["zone-a", "zone-b", "rack-2"]
    assert BrokerConfig.from_mapping({}).rack_name(0) == "rack-0"


def test_hosts_are_grouped_by_their_racks() -> None:
    """A host has one rack, a rack many hosts."""
    hosts = "10.0.0.1=zone-a, 10.0.0.2 = zone-b,10.0.0.3=zone-a"
    config = BrokerConfig.from_mapping({"sparklog.rack.names": ZONES, "sparklog.rack.hosts": hosts})
    assert config.hosts_of_racks == {
        "zone-a": frozenset({"10.0.0.1", "10.0.0.3"}),
        "zone-b": frozenset({"10.0.0.2"}),
    }


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"sparklog.rack.names": "a,a"}, "no two alike"),
        ({"sparklog.rack.names": "rack-1"}, "two racks of the cluster have the same name"),
        ({"sparklog.rack.hosts": "zone-a"}, "host=rack"),
        ({"sparklog.rack.hosts": "h=zone-a"}, r"the racks are rack-0, rack-1; set sparklog\.rack\.names"),
    ],
)
def test_names_that_are_no_racks_of_the_cluster_are_refused(keys: dict[str, str], said: str) -> None:
    """Replicas of a partition would share a rack, or a preference have no effect, without a word."""
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.from_mapping(keys).check_racks(2)


@pytest.mark.parametrize(("names", "rack"), [("", "rack-2"), ("zone-a,zone-b,zone-c", "zone-c")])
def test_hosts_of_racks_to_come_are_kept_with_a_warning(
    names: str, rack: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster that shrinks keeps its configuration, and one that will grow may have it beforehand."""
    config = BrokerConfig.from_mapping({"sparklog.rack.names": names, "sparklog.rack.hosts": f"h={rack}"})
    config.check_racks(2)
    assert f"sparklog.rack.hosts has hosts of {rack}" in caplog.text
    config.check_racks(3)
