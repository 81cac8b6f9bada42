"""The driver's host in the controller's addresses, where only Spark knows it."""

import pytest

from sparklog.driver.machine.driver_host import with_driver_host

KEY = "controller.quorum.bootstrap.servers"


@pytest.mark.parametrize(
    ("given", "host", "expected"),
    [
        ("spark.driver.host:9092", "node-7", "node-7:9092"),
        ("spark.driver.host:0", "[fd00::7]", "[fd00::7]:0"),
        ("spark.driver.host:0", "fd00::7", "[fd00::7]:0"),
        (
            "INSIDE://spark.driver.host:9092, OUTSIDE://driver.example:9093",
            "10.0.0.7",
            "INSIDE://10.0.0.7:9092,OUTSIDE://driver.example:9093",
        ),
        ("driver.example:9092", "node-7", "driver.example:9092"),
        ("my.spark.driver.host:9092", "node-7", "my.spark.driver.host:9092"),
        ("spark.driver.host", "node-7", "spark.driver.host"),
        ("", "node-7", ""),
    ],
)
def test_address_that_leaves_the_host_to_spark_has_sparks(given: str, host: str, expected: str) -> None:
    """In cluster mode the host is chosen after the properties file was written."""
    kept = {"num.partitions": "3"}
    assert with_driver_host(kept | {KEY: given}, host) == kept | {KEY: expected}


def test_configuration_without_addresses_gets_none() -> None:
    """The default stays loopback: no address beyond this machine is used that was not named."""
    assert with_driver_host({"num.partitions": "3"}, "node-7") == {"num.partitions": "3"}
