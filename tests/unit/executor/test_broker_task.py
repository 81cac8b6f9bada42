"""The barrier task that is a broker, as far as it needs no Spark."""

import pytest

from executor.broker_task import host_name


@pytest.mark.parametrize(
    ("executor_address", "expected"),
    [
        ("10.1.2.3:40123", "10.1.2.3"),
        ("worker-7.example:40123", "worker-7.example"),
        ("[2001:db8::7]:40123", "2001:db8::7"),
        ("127.0.0.1:40123", "driver.example"),
        ("[::1]:40123", "driver.example"),
        ("localhost:40123", "driver.example"),
    ],
)
def test_host_is_known_as_spark_knows_it_and_as_the_controllers_where_they_share_it(
    executor_address: str, expected: str
) -> None:
    """An executor beside the driver comes over loopback; told to other hosts, that would lead them astray."""
    assert host_name(executor_address, "driver.example") == expected
