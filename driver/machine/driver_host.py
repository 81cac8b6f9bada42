"""The driver's host in the controller's addresses, by the name that Spark has for it. Pure.

In cluster mode YARN and Kubernetes choose the host of the driver, so no file can name it beforehand. An
address with the host `spark.driver.host` is at the value of Spark's property of that name, which executors
connect to.
"""

from collections.abc import Mapping
from typing import Final

PROPERTY: Final = "spark.driver.host"
_KEY: Final = "controller.quorum.bootstrap.servers"


def with_driver_host(configuration: Mapping[str, str], host: str) -> dict[str, str]:
    """Return the configuration with Spark's `host` in the controller's addresses that leave it to Spark.

    >>> with_driver_host({"controller.quorum.bootstrap.servers": "spark.driver.host:9092"}, "10.0.0.7")
    {'controller.quorum.bootstrap.servers': '10.0.0.7:9092'}
    """
    if _KEY not in configuration:
        return dict(configuration)
    # Spark writes IPv6 addresses in brackets, but takes them without.
    written = f"[{host}]" if ":" in host and not host.startswith("[") else host
    addresses = [_at(address.strip(), written) for address in configuration[_KEY].split(",")]
    return {**configuration, _KEY: ",".join(addresses)}


def _at(address: str, host: str) -> str:
    name, separator, host_and_port = address.rpartition("://")
    named, colon, port = host_and_port.rpartition(":")
    return f"{name}{separator}{host}{colon}{port}" if named == PROPERTY else address
