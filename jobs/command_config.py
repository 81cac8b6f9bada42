"""`--command-config FILE`, as in Kafka's tools: a client's settings in a properties file."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.user.client.config import ClientConfig, parse_bootstrap_servers
from sparklog.user.client.connecting import connected

ANSWER_WITHIN_MS: Final = 4_000
"""For all addresses together; a user waits at a terminal."""


def add_command_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        type=Path,
        help="a properties file with the client's settings: security.protocol, sasl.*, ssl.*",
    )


def command_client(bootstrap: str, command_config: Path | None) -> ClientConfig:
    """Return the client configuration for a cluster, by these arguments.

    Raises:
        ValueError: an address is malformed, or a setting is wrong, unknown, or not supported.
        KafkaError: the file is not a properties file.
    """
    if command_config is None:
        return ClientConfig(bootstrap_servers=parse_bootstrap_servers(bootstrap))
    from sparklog.node.config import read_properties
    from sparklog.user.dataframe.kafka_options import KafkaOptions

    settings = {**read_properties(command_config), "bootstrap.servers": bootstrap}
    return KafkaOptions(settings, None, report=lambda text: print(text, file=sys.stderr)).client()


def check_answers(client: ClientConfig, within_ms: int = ANSWER_WITHIN_MS) -> None:
    """Ask the bootstrap servers in turn for their API versions, until one answers.

    Raises:
        KafkaError: NETWORK_EXCEPTION: none answers within `within_ms`; names the error of each.
    """
    brief = replace(client, request_timeout_ms=within_ms // len(client.bootstrap_servers))
    failures = []
    for address in client.bootstrap_servers:
        try:
            with connected(brief, address) as channel:
                channel.negotiate()
                return
        except KafkaError as error:
            failures.append(f"{address[0]}:{address[1]} ({error})")
    raise KafkaError(ErrorCode.network_exception, f"no cluster answers at {', '.join(failures)}")
