"""Commands at an address at which no cluster answers."""

import socket

import pytest

from sparklog.jobs.command_config import ANSWER_WITHIN_MS, check_answers
from sparklog.jobs.sinks.__main__ import main as sinks
from sparklog.protocol.errors import KafkaError
from sparklog.user.client.config import ClientConfig


def test_command_at_an_address_that_is_silent_or_refuses_names_both_in_time() -> None:
    """A user waits at a terminal, and the default time-out of a client is a minute."""
    assert ANSWER_WITHIN_MS < 5_000
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        addresses = (silent.getsockname(), refusing.getsockname())
        with pytest.raises(KafkaError) as raised:
            check_answers(ClientConfig(bootstrap_servers=addresses), within_ms=400)
    for host, port in addresses:
        assert f"{host}:{port} (" in raised.value.message


def test_sinks_at_a_dead_address_ends_with_an_error_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """A slip in the address must not look like a slow cluster."""
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{refusing.getsockname()[1]}"
        assert sinks([address]) == 1
    assert f"no cluster answers at {address}" in capsys.readouterr().err
