"""Executors that Spark knows under another host than the driver's: what must not stay on loopback.

The other host is this one under a name that only the JVMs resolve.
"""

import json
import socket
from pathlib import Path

import pytest

from tests.spark.applications import run_application

OTHER_HOST = "elsewhere.invalid"
SCRAM = "SCRAM-SHA-256"
APPLICATION = """
import json
import sys
from confluent_kafka.admin import AdminClient
import sparklog
from tests.spark.sessions import spark_session

with spark_session("local-cluster[1,1,512]", spark_executor_memory="512m") as spark:
    for config in json.loads(sys.argv[1]):
        try:
            with sparklog.start(spark, racks=1, config=config) as cluster:
                admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
                brokers = admin.list_topics(timeout=10).brokers.values()
                print(json.dumps([broker.host for broker in brokers]))
        except sparklog.StartError as error:
            print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def address_beyond_loopback() -> str:
    """Return an address of this machine that others could reach, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


@pytest.mark.long
def test_addresses_that_executors_elsewhere_cannot_use_are_refused_and_others_taken(tmp_path: Path) -> None:
    """Brokers would look for a controller on their own machine, for minutes, and tell clients to do so."""
    address = address_beyond_loopback()
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {OTHER_HOST} {socket.gethostname()}\n")
    configs: list[dict[str, str]] = [
        {},
        {"controller.quorum.bootstrap.servers": f"{address}:0"},
        {"controller.quorum.bootstrap.servers": f"{address}:0", "listeners": "PLAINTEXT://0.0.0.0:0"},
    ]
    trusted = {"sparklog.trusted.network": "true"}
    asking = {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT", "sasl.enabled.mechanisms": SCRAM}
    configs = [
        *({**config, **trusted} for config in configs),
        configs[2],
        {**configs[2], **asking},
    ]
    done = run_application(
        APPLICATION,
        tmp_path,
        json.dumps(configs),
        SPARK_LOCAL_HOSTNAME=OTHER_HOST,
        JAVA_TOOL_OPTIONS=f"-Djdk.net.hosts.file={hosts}",
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    nothing_set, loopback_listeners, reachable, open_to_all, open_by_spark = told
    controller_key, listener_keys = "controller.quorum.bootstrap.servers is 127.0.0.1:0", "set listeners to"
    assert nothing_set.startswith("LoopbackAddressError") and OTHER_HOST in nothing_set
    assert controller_key in nothing_set and listener_keys in nothing_set
    assert loopback_listeners.startswith("LoopbackAddressError")
    assert controller_key not in loopback_listeners and listener_keys in loopback_listeners
    assert reachable == [address]
    assert open_to_all.startswith("OpenNetworkError") and "PLAINTEXT://0.0.0.0" in open_to_all
    assert open_by_spark.startswith("OpenNetworkError") and "spark.authenticate=true" in open_by_spark
