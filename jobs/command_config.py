"""`--command-config FILE`, as Kafka's tools have it: a client's settings in a properties file."""

import argparse
import sys
from pathlib import Path

from sparklog.client.config import ClientConfig, parse_bootstrap_servers

__all__ = ["add_command_config", "command_client"]


def add_command_config(parser: argparse.ArgumentParser) -> None:
    """Add the argument."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        type=Path,
        help="a properties file with the client's settings: security.protocol, sasl.*, ssl.*",
    )


def command_client(bootstrap: str, command_config: Path | None) -> ClientConfig:
    """Return how to reach a cluster, by these arguments.

    Raises:
        ValueError: an address is none, or a setting is wrong, unknown, or not supported.
        KafkaError: the file is no properties file.
    """
    if command_config is None:
        return ClientConfig(bootstrap_servers=parse_bootstrap_servers(bootstrap))
    from sparklog.config import read_properties
    from sparklog.dataframe.kafka_options import KafkaOptions

    settings = {**read_properties(command_config), "bootstrap.servers": bootstrap}
    return KafkaOptions(settings, None, report=lambda text: print(text, file=sys.stderr)).client()
